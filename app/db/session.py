"""Engines and migrations: how every process reaches PostgreSQL.

Each role of the pipeline gets its own small pool with time-outs that fit it. No connection is ever held across a
provider call, and a stopped process cannot keep row locks for longer than `idle_in_transaction_session_timeout`.
"""

from importlib import resources
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.engine import URL, Engine, make_url

_IDLE_IN_TRANSACTION = "15s"


def make_engine(
    url: str,
    *,
    application_name: str,
    pool_size: int = 4,
    statement_timeout_seconds: float = 30.0,
    pool_timeout_seconds: float = 2.0,
    connect_timeout_seconds: int = 5,
    autocommit: bool = False,
    pre_ping: bool = True,
    options: str = "",
) -> Engine:
    """Return an engine whose sessions commit synchronously and cannot hang for ever.

    A dead server is noticed by TCP keep-alives within about 25 s; a stale pooled connection by a ping at checkout,
    which a caller that repeats its work on a dead connection can spare.
    Settings travel as start-up options, so that they also hold behind a pooler in session mode; `options` adds to
    them, as `-c name=value`.
    """
    session_options = (
        f"-c statement_timeout={int(statement_timeout_seconds * 1000)} "
        f"-c idle_in_transaction_session_timeout={_IDLE_IN_TRANSACTION} "
        f"-c synchronous_commit=on -c timezone=UTC -c jit=off {options}"
    )
    return create_engine(
        _with_driver(url),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=pool_timeout_seconds,
        pool_pre_ping=pre_ping,
        isolation_level="AUTOCOMMIT" if autocommit else "READ COMMITTED",
        connect_args={
            "application_name": application_name,
            "connect_timeout": connect_timeout_seconds,
            "keepalives": 1,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "options": session_options,
        },
    )


def _with_driver(url: str) -> URL:
    parsed = make_url(url)
    return parsed if "+" in parsed.drivername else parsed.set(drivername="postgresql+psycopg2")


def migration_config(url: str) -> Config:
    """Return the Alembic configuration for the database at `url`."""
    config = Config()
    package = Path(str(resources.files("migrations")))
    config.set_main_option("script_location", str(package))
    config.set_main_option(
        "sqlalchemy.url", _with_driver(url).render_as_string(hide_password=False).replace("%", "%%")
    )
    return config


def migrate(url: str, revision: str = "head") -> None:
    """Bring the database up to `revision`; safe to run from many processes at once."""
    command.upgrade(migration_config(url), revision)
