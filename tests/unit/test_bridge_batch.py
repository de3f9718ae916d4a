"""How the bridge reads records and groups them: pure, so on made-up records."""

import json

import pytest

from app.bridge.batch import Handed, plan, read
from app.domain.envelope import DeliveryDue, Marker
from app.domain.ids import mint
from app.domain.kinds import Channel, Priority
from app.queues import LANES, TASK_DELIVER, TASK_MARK
from app.services.dead_letters import Poison
from app.services.task_list import ids_in

LOW = LANES[Priority.LOW]


class Record:
    """What the bridge asks of a Kafka message."""

    def __init__(self, value, partition=0, offset=7):
        self._value, self._partition, self._offset = value, partition, offset

    def value(self):
        return self._value

    def key(self):
        return b"key"

    def topic(self):
        return LOW.topic

    def partition(self):
        return self._partition

    def offset(self):
        return self._offset


def due(channel=Channel.SMS, rescues=0):
    identifier = str(mint()[0])
    return DeliveryDue("e", identifier, identifier, channel, Priority.LOW, "demo", rescues)


def handed(*items, partition=0):
    return [Handed(partition, offset, item) for offset, item in enumerate(items)]


def kinds(made):
    return [json.loads(task)["headers"]["task"] for task in made.tasks]


def test_ids_of_one_channel_share_a_task_up_to_its_size():
    """What waits of a channel travels together, whatever its partition; the rest is not held back for more."""
    sms, mails = [due() for _ in range(5)], [due(Channel.EMAIL) for _ in range(2)]
    made = plan(LOW, 3, [*handed(*sms[:3]), *handed(*mails, partition=1), *handed(*sms[3:], partition=1)])
    assert sorted(made.chunks) == [(Channel.EMAIL, 2), (Channel.SMS, 2), (Channel.SMS, 3)]
    carried = [identifier for task in made.tasks for identifier in ids_in(task)]
    assert sorted(carried) == sorted(item.delivery_id for item in sms + mails)


def test_a_suspect_travels_alone():
    """An id that was lost before may be what killed its worker, so no other shares its task."""
    made = plan(LOW, 100, handed(due(), due(rescues=1), due()))
    assert sorted(size for _, size in made.chunks) == [1, 2]
    [alone] = [task for task in made.tasks if len(ids_in(task)) == 1]
    assert json.loads(json.loads(alone)["body"])[1]["suspect"] is True


def test_a_marker_goes_behind_every_id_that_lay_before_it():
    """All open chunks are closed before a marker's task, and what follows opens new ones.

    Fails when a marker overtakes a buffered chunk (no `close` in the marker's branch of `plan`).
    """
    before = [due(), due(Channel.EMAIL), due()]
    after = [due(), due()]
    made = plan(LOW, 100, handed(*before, Marker(LOW.topic, 0, 5), *after))
    assert kinds(made) == [TASK_DELIVER, TASK_DELIVER, TASK_MARK, TASK_DELIVER]
    ahead = {identifier for task in made.tasks[:2] for identifier in ids_in(task)}
    assert ahead == {item.delivery_id for item in before}


@pytest.mark.parametrize(
    "value",
    [
        b"\xff\xfe{",
        b'{"schema":999}',
        b"",
        None,
        b"[]",
        b"[" * 100_000,
        b'{"version":1,"event_type":"delivery.due"}',
        b'{"version":2}',
    ],
)
def test_what_cannot_be_understood_is_poison_with_its_reason(value):
    """Case B11. Nothing that a record carries ends the loop."""
    poison = read(Record(value, 3, 9))
    assert isinstance(poison, Poison)
    assert (poison.partition, poison.offset, poison.tries) == (3, 9, 3)
    assert poison.value == (value or b"")
    assert poison.reason


def test_a_marker_of_another_partition_proves_nothing():
    """A marker that was put back by hand elsewhere may not speak for the partition in which it was found."""
    assert isinstance(read(Record(Marker(LOW.topic, 1, 5).encode(), partition=0)), Poison)
    assert isinstance(read(Record(Marker("notifications.high", 0, 5).encode(), partition=0)), Poison)
    assert isinstance(read(Record(Marker(LOW.topic, 0, 5).encode(), partition=0)), Handed)
