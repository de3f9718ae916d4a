"""Parts for tests of batches: users in number, an expander on the test's database, and looks at what it made."""

from typing import Any

from sqlalchemy.engine import Engine

from app.db.deliveries import WRITE_OPTIONS
from app.db.session import make_engine
from app.domain.kinds import Priority
from app.rendering.library import Library
from app.services.accept.deciding import Deciding
from app.services.accept.rows import Rows
from app.services.batches.chunks import Chunks
from app.services.batches.expand import Expand
from app.settings import Settings
from app.wiring import arrivals
from tests.pipeline_parts import sql
from tests.sealed import VAULT

_USERS = """
INSERT INTO app_user (tenant_id, id, locale, attributes, email, email_index, phone, phone_index, created_at)
SELECT %(tenant)s, 'u' || lpad(n::text, 7, '0'), CASE WHEN n %% 2 = 0 THEN 'pt-BR' ELSE 'en' END,
       jsonb_build_object('plan', CASE WHEN n %% 10 = 0 THEN 'gold' ELSE 'free' END, 'n', n),
       CASE WHEN n %% 5 <> 0 THEN '\\x01'::bytea END, CASE WHEN n %% 5 <> 0 THEN '\\x01'::bytea END,
       '\\x02'::bytea, '\\x02'::bytea, now() - interval '1 day'
FROM generate_series(%(first)s, %(last)s) AS n
"""


def add_users(engine: Engine, count: int, *, tenant: str = "demo", first: int = 1) -> None:
    """Store users `u0000001` and so on; every second one pt-BR, every tenth gold, every fifth without e-mail.

    Their addresses are no sealed values: nothing is sent to them here.
    """
    sql(engine, _USERS, tenant=tenant, first=first, last=first + count - 1)


def make_expander(database_url: str, **chosen: Any) -> Expand:
    """Return an expander with the options of the service, on an engine of its own."""
    engine = make_engine(database_url, application_name="test-batch", pool_size=2, options=WRITE_OPTIONS)
    library = Library()
    chunks = Chunks(VAULT, Rows(VAULT, 6), Deciding(VAULT, library, 60), library)
    # Nothing listens there: counts of inboxes are then not kept, and nobody is told.
    nowhere = arrivals(Settings(_env_file=None, cache_url="redis://127.0.0.1:1/0"))
    values: dict[str, Any] = {"chunks": chunks, "running_limit": 4, "nudge": _nobody, "arrivals": nowhere} | chosen
    return Expand(engine, VAULT, **values)


def _nobody(priority: Priority) -> None:
    del priority


def made(engine: Engine, batch_id: str) -> list[tuple[Any, ...]]:
    """Return the notifications of a batch as (user_id, delivery_count)."""
    return sql(
        engine,
        "SELECT user_id, delivery_count FROM notification WHERE batch_id = %(id)s::uuid ORDER BY user_id",
        id=batch_id,
    )


def batch(engine: Engine, batch_id: str) -> dict[str, Any]:
    """Return a batch's row by column name."""
    with engine.begin() as connection:
        found = connection.exec_driver_sql("SELECT * FROM batch WHERE id = %(id)s::uuid", {"id": batch_id})
        return dict(found.mappings().one())
