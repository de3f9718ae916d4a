"""What health checks ask the database: whether it answers, and whether its tables are there."""

from sqlalchemy.engine import Connection

PING = "SELECT 1"
MIGRATED = "SELECT to_regclass('delivery') IS NOT NULL AND to_regclass('alembic_version') IS NOT NULL"


def ping(connection: Connection) -> None:
    """Return when the database answers; raise what the driver raises."""
    connection.exec_driver_sql(PING)


def is_migrated(connection: Connection) -> bool:
    """Return whether the tables have been created."""
    return bool(connection.exec_driver_sql(MIGRATED).scalar())
