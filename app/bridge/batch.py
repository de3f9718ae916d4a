"""Turns the records of one poll into Celery tasks, in an order that keeps what markers prove.

Invariant: when a marker's task goes into the list, every id that lay before the marker in its partition is already
in the list. Ids of one channel share a task, whatever their partition, so a marker closes all open chunks.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

from app.domain.envelope import DeliveryDue, EnvelopeError, Marker, decode
from app.domain.kinds import Channel
from app.kafka.consumer import Message
from app.queues import Lane
from app.services.dead_letters import Poison
from app.services.task_list import Task, deliver_task, mark_task


@dataclass(frozen=True, slots=True)
class Handed:
    """One record that was understood."""

    partition: int
    offset: int
    item: DeliveryDue | Marker


@dataclass(slots=True)
class Plan:
    """The tasks of a batch in their order, and what they carry, for the metrics."""

    tasks: list[Task] = field(default_factory=list)
    chunks: list[tuple[Channel, int]] = field(default_factory=list)
    markers: int = 0


TRIES = 3


def read(record: Message) -> Handed | Poison:
    """Understand one record; never raises for what it carries.

    Every failure is tried again, so that a fault of the moment (no memory, a bug that depends on time) sets no
    record aside at once.
    """
    value = record.value()
    raw = value if isinstance(value, bytes) else str(value or "").encode()
    where = (record.partition() or 0, record.offset() or 0)
    reason = ""
    for _ in range(TRIES):
        try:
            item = decode(raw, orjson.loads)
        except EnvelopeError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001  one bad record must not end the loop, whatever it does
            reason = repr(error)
        else:
            if isinstance(item, DeliveryDue) or (item.topic, item.partition) == (record.topic(), where[0]):
                return Handed(*where, item)
            reason = f"a marker of {item.topic}/{item.partition} proves nothing here"
    key = record.key()
    return Poison(*where, key if isinstance(key, bytes) else None, raw, reason[:500], TRIES)


def plan(lane: Lane, chunk_size: int, records: Iterable[Handed]) -> Plan:
    """Group ids into tasks of one channel each; a suspect travels alone; a marker goes behind all before it."""
    made = Plan()
    waiting: dict[Channel, list[str]] = {}

    def close(channel: Channel) -> None:
        ids = waiting.pop(channel)
        made.tasks.append(deliver_task(lane.queue, channel, ids))
        made.chunks.append((channel, len(ids)))

    for record in records:
        item = record.item
        if isinstance(item, Marker):
            for channel in list(waiting):
                close(channel)
            made.tasks.append(mark_task(lane.queue, item.topic, item.partition, item.seq))
            made.markers += 1
        elif item.rescues:
            made.tasks.append(deliver_task(lane.queue, item.channel, [item.delivery_id], is_suspect=True))
            made.chunks.append((item.channel, 1))
        else:
            ids = waiting.setdefault(item.channel, [])
            ids.append(item.delivery_id)
            if len(ids) >= chunk_size:
                close(item.channel)
    for channel in list(waiting):
        close(channel)
    return made
