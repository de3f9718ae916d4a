"""What health checks ask the database: whether it answers, and whether its tables are there."""

from app.db.requests import Cursor

PING = "SELECT 1"
MIGRATED = "SELECT to_regclass('delivery') IS NOT NULL AND to_regclass('alembic_version') IS NOT NULL"


def ping(cursor: Cursor) -> None:
    """Return when the database answers; raise what the driver raises."""
    cursor.execute(PING)


def is_migrated(cursor: Cursor) -> bool:
    """Return whether the tables have been created."""
    cursor.execute(MIGRATED)
    return cursor.fetchone() == (True,)
