"""The last use of API keys: in memory first, written now and then, never lost to a database that is away."""

from app.services.last_use import LastUses


class Table:
    """Takes what is written, or refuses it."""

    def __init__(self) -> None:
        self.written: list[dict[str, float]] = []
        self.is_away = False

    def write(self, ages):
        if self.is_away:
            raise OSError
        self.written.append(dict(ages))


class Clock:
    """Stands still until told otherwise."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def made():
    """Marks whose thread never runs, with what they write to and the clock that they look at."""
    table, clock = Table(), Clock()
    uses = LastUses(table.write, interval_seconds=60, clock=clock)
    uses._start = lambda: None
    return uses, table, clock


def test_a_key_is_written_at_once_and_then_once_in_the_interval():
    """Many uses are one row, with the age of the newest. Fails when each look of the thread writes."""
    uses, table, clock = made()
    uses.note("a")
    clock.now += 1
    uses.write_due()
    assert table.written == [{"a": 1.0}]
    for _ in range(50):
        clock.now += 1
        uses.note("a")
        uses.write_due()
    assert len(table.written) == 1
    uses.note("b")
    uses.write_due()
    assert table.written[1:] == [{"b": 0.0}]
    clock.now += 15
    uses.write_due()
    assert table.written[2:] == [{"a": 15.0}]
    clock.now += 600
    uses.write_due()
    assert len(table.written) == 3, "nothing was used since"


def test_what_the_database_does_not_take_comes_again_after_the_interval():
    """A database that is away is asked once a minute and not once a second; the newest use counts."""
    uses, table, clock = made()
    table.is_away = True
    uses.note("a")
    uses.write_due()
    table.is_away = False
    for _ in range(59):
        clock.now += 1
        uses.write_due()
    assert table.written == []
    uses.note("a")
    clock.now += 1
    uses.write_due()
    assert table.written == [{"a": 1.0}]


def test_the_end_of_a_process_writes_what_is_left():
    """Whenever it was last written; and nothing where there is nothing."""
    uses, table, clock = made()
    uses.flush()
    assert table.written == []
    uses.note("a")
    uses.write_due()
    clock.now += 1
    uses.note("a")
    uses.flush()
    assert table.written == [{"a": 0.0}, {"a": 0.0}]


def test_keys_that_are_out_of_use_are_forgotten():
    """A process that lives for a year does not remember every key that it ever saw."""
    uses, _, clock = made()
    for number in range(100):
        uses.note(str(number))
        uses.write_due()
        clock.now += 61
    assert len(uses._tried_at) == 1
    assert uses._marks == {}
