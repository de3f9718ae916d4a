"""Migrations: up and down and up again, taking turns, and giving up rather than holding up traffic."""

import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from app.db import schema
from app.db.session import make_engine, migrate
from app.services.migrate import Migrate, MigrationBlockedError
from app.services.partitions import PartitionsAhead
from embedded.processes import Child, Launch, tail
from tests.waiting import eventually

_CATALOGUE = (
    """SELECT table_name, column_name, data_type, is_nullable, column_default
       FROM information_schema.columns WHERE table_schema = 'public'""",
    "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    """SELECT conrelid::regclass, conname, pg_get_constraintdef(oid)
       FROM pg_constraint WHERE connamespace = 'public'::regnamespace""",
    "SELECT tablename, policyname, roles, qual FROM pg_policies",
    "SELECT sequencename FROM pg_sequences",
)


def describe(url: str) -> set[tuple[str, ...]]:
    """Every table, column, index, constraint and policy of a database."""
    engine = make_engine(url, application_name="test")
    with engine.connect() as connection:
        found = {tuple(map(str, row)) for sql in _CATALOGUE for row in connection.exec_driver_sql(sql)}
    engine.dispose()
    return found


def test_up_and_down_twice_leads_to_the_same_tables(empty_database_url: str) -> None:
    """Down removes all that up made, so that up works again and makes the same."""
    empty = describe(empty_database_url)
    migrate(empty_database_url)
    first = describe(empty_database_url)
    for _ in range(2):
        schema.downgrade(empty_database_url, "base")
        left = {entry for entry in describe(empty_database_url) - empty if "alembic_version" not in str(entry)}
        assert left == set()
        migrate(empty_database_url)
        assert describe(empty_database_url) == first


def test_there_is_one_newest_revision(empty_database_url: str) -> None:
    """Two heads would make `head` ambiguous and every start fail."""
    migrate(empty_database_url)
    engine = make_engine(empty_database_url, application_name="test")
    with engine.connect() as connection:
        assert schema.current(connection) == schema.newest(empty_database_url)
    engine.dispose()


def test_racing_migrators_take_turns(empty_database_url: str, tmp_path: Path) -> None:
    """Four processes that start together: one migrates, the others find it done, none fails.

    Fails without the advisory lock, with a duplicate key in the catalogue.
    """
    command = [sys.executable, "-c", f"from app.db.session import migrate; migrate({empty_database_url!r})"]
    log = tmp_path / "migrate.log"
    children = [Child(Launch(command, log)) for _ in range(4)]
    try:
        eventually(lambda: all(child.poll() is not None for child in children), seconds=120)
        assert [child.poll() for child in children] == [0] * 4, tail(log)
    finally:
        for child in children:
            child.stop()
    assert describe(empty_database_url)


def test_a_locked_table_makes_a_migration_give_up_with_nothing_half_done(
    engine: Engine, database_url: str
) -> None:
    """A transaction that holds a table makes the migration fail after its lock timeout; all tables stay.

    Fails without `lock_timeout`, when it would queue in front of all traffic until that transaction ends.
    """
    before = describe(database_url)
    steps = Migrate(database_url, engine, PartitionsAhead(engine, 7))
    with engine.connect() as holder:
        holder.exec_driver_sql("SELECT count(*) FROM idempotency_key")
        with pytest.raises(MigrationBlockedError, match="nothing was changed"):
            steps.down("base")
    assert describe(database_url) == before
    assert steps.down("base").revision == "base"


def test_other_errors_of_a_migration_are_not_taken_for_a_lock(engine: Engine) -> None:
    """A server that is away is reported as what it is."""
    steps = Migrate("postgresql+psycopg2://127.0.0.1:1/none", engine, PartitionsAhead(engine, 7))
    with pytest.raises(OperationalError):
        steps.up()


def test_a_migration_waits_for_another_one(empty_database_url: str) -> None:
    """While one holds the turn, the next one waits and does not fail, however long the first takes."""
    engine = make_engine(empty_database_url, application_name="holder")
    done = threading.Event()

    def run() -> None:
        migrate(empty_database_url)
        done.set()

    with engine.connect() as holder:
        holder.exec_driver_sql("SELECT pg_advisory_xact_lock(7238110)")
        thread = threading.Thread(target=run)
        thread.start()
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        eventually(lambda: holder.exec_driver_sql(waits).scalar_one() == 1)
        assert not done.is_set()
        holder.rollback()
        thread.join(30)
    assert done.is_set()
    engine.dispose()


def test_revisions_are_numbered_in_order() -> None:
    """A file's name says its place, so that two branches that add one collide in review and not in production."""
    from migrations import versions

    names = sorted(path.name for path in Path(versions.__path__[0]).glob("[0-9]*.py"))
    assert [name[:4] for name in names] == [f"{number:04d}" for number in range(1, len(names) + 1)]
