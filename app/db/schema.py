"""Which revision of the tables a database has, and moving it up and down."""

from collections.abc import Callable

from alembic import command
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from app.db.session import migrate, migration_config

Step = Callable[[str, str], None]

upgrade: Step = migrate


def downgrade(url: str, revision: str) -> None:
    """Take the database at `url` back to `revision`; `base` drops every table."""
    command.downgrade(migration_config(url), revision)


def current(connection: Connection) -> str | None:
    """Return the revision of the database, or None when nothing was ever applied."""
    return MigrationContext.configure(connection).get_current_revision()


def newest(url: str) -> str | None:
    """Return the newest revision that this version of the code knows."""
    return ScriptDirectory.from_config(migration_config(url)).get_current_head()
