"""Run migrations online: one at a time in the whole installation, and never long in front of traffic.

A transaction-level advisory lock lets a second migrator wait instead of racing; `lock_timeout` makes a migration
that cannot get its table locks at once fail, rather than queue every other statement behind it.
"""

from alembic import context
from sqlalchemy import create_engine, pool, text

from app.settings import get_settings

_MIGRATION_LOCK = 7_238_110
_LOCK_TIMEOUT = "5s"
_STATEMENT_TIMEOUT = "10min"


def run() -> None:
    """Apply the asked-for revisions in one transaction."""
    url = context.config.get_main_option("sqlalchemy.url") or get_settings().sqlalchemy_url
    engine = create_engine(url, poolclass=pool.NullPool)
    with engine.connect() as connection, connection.begin():
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        connection.execute(text(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'"))
        connection.execute(text(f"SET LOCAL statement_timeout = '{_STATEMENT_TIMEOUT}'"))
        context.configure(connection=connection, target_metadata=None)
        context.run_migrations()


run()
