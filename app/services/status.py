"""Status: how much waits, and for how long, at every hop of the pipeline, by priority.

A hop that cannot be asked is named with its reason and leaves the others readable: an operator looks here when
something is broken.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from redis import RedisError
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from app.db import outbox
from app.db import status as figures
from app.domain.kinds import Priority
from app.kafka.topics import KafkaUnavailableError
from app.queues import LANES, RELAY_QUEUE

_RATE_SECONDS = 60
_TOTALS_TIMEOUT_SECONDS = 5.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look. Ages and windows in seconds; `None` where it could not be told.

    `priorities`: by name, what waits at each hop. `states`: by priority and state, accepted in the last `hours`.
    `rates`: per minute. `watermarks`: by topic, partition and number of the last marker that counts.
    `unreachable`: hop → reason.
    """

    at: datetime
    hours: int
    priorities: dict[str, dict[str, Any]]
    states: dict[str, dict[str, int]] | None
    rates: dict[str, float]
    breakers: dict[str, str]
    watermarks: dict[str, int]
    relay_list: int | None
    unreachable: dict[str, str]


@dataclass(frozen=True)
class Status:
    """Looks through its ports.

    `kafka_lags`: topic → lag, empty without Kafka; raises KafkaUnavailableError. `list_length` of a Celery list
    and `breakers`, provider → state, raise RedisError. `wait` lets seconds pass between two samples.
    """

    engine: Engine
    kafka_lags: Callable[[], Mapping[str, int]]
    list_length: Callable[[str], int]
    breakers: Callable[[], dict[str, str]]
    hold_seconds: float
    wait: Callable[[float], None]

    def look(self, *, hours: int = 24, sample_seconds: float = 2.0) -> Snapshot:
        """Take one look; rates of calls are measured over `sample_seconds`, 0 leaves them out."""
        unreachable: dict[str, str] = {}
        lags: Mapping[str, int] = self._ask(unreachable, "kafka", self.kafka_lags, {})
        lists: dict[str, int] = self._ask(unreachable, "redis", self._lists, {})
        breakers: dict[str, str] = self._ask(unreachable, "redis", self.breakers, {})
        with self.engine.connect() as connection:
            now = figures.server(connection).now
            priorities = self._priorities(connection, lags, lists)
            watermarks = {
                topic: min(partitions.values())
                for topic, partitions in outbox.passed_marks(connection, self.hold_seconds).items()
            }
            accepted = figures.accepted_since(connection, now - timedelta(seconds=_RATE_SECONDS))
        rates = {"accepted_per_minute": float(accepted)}
        if sample_seconds > 0:
            rates["calls_per_minute"] = self._calls_per_minute(sample_seconds)
        return Snapshot(
            at=now,
            hours=hours,
            priorities=priorities,
            states=self._ask(unreachable, "states", lambda: self._states(now - timedelta(hours=hours)), None),
            rates=rates,
            breakers=breakers,
            watermarks=watermarks,
            relay_list=lists.get(RELAY_QUEUE),
            unreachable=unreachable,
        )

    def _lists(self) -> dict[str, int]:
        queues = [lane.queue for lane in LANES.values()]
        return {queue: self.list_length(queue) for queue in (*queues, RELAY_QUEUE)}

    @staticmethod
    def _ask(unreachable: dict[str, str], hop: str, ask: Callable[[], T], otherwise: T) -> T:
        try:
            return ask()
        except (KafkaUnavailableError, RedisError, SQLAlchemyError) as error:
            unreachable[hop] = (str(error).splitlines() or [type(error).__name__])[0]
            return otherwise

    @staticmethod
    def _priorities(
        connection: Connection, lags: Mapping[str, int], lists: Mapping[str, int]
    ) -> dict[str, dict[str, Any]]:
        stages = {
            "pending": figures.pending(connection),
            "queued": figures.queued(connection),
            "sending": figures.sending(connection),
            "unknown": figures.unknown(connection),
        }
        result: dict[str, dict[str, Any]] = {}
        for priority, lane in LANES.items():
            mine = {stage: [row for row in rows if row.priority == priority] for stage, rows in stages.items()}
            oldest = figures.oldest_queued(connection, priority)
            result[priority.name] = {
                "due": sum(row.late for row in mine["pending"]),
                "due_oldest_age_seconds": _oldest(mine["pending"]),
                "later": sum(row.count - row.late for row in mine["pending"]),
                "queued": sum(row.count for row in mine["queued"]),
                "queued_oldest_age_seconds": oldest[1] if oldest else None,
                "queued_oldest_seq": oldest[0] if oldest else None,
                "kafka_lag": lags.get(lane.topic),
                "celery_list": lists.get(lane.queue),
                "sending": sum(row.count for row in mine["sending"]),
                "sending_oldest_age_seconds": _oldest(mine["sending"]),
                "sending_past_lease": sum(row.late for row in mine["sending"]),
                "unknown": sum(row.count for row in mine["unknown"]),
                "unknown_oldest_age_seconds": _oldest(mine["unknown"]),
                "unknown_past_window": sum(row.late for row in mine["unknown"]),
                "channels": {
                    stage: {row.channel: row.count for row in rows} for stage, rows in mine.items() if rows
                },
            }
        return result

    def _states(self, since: datetime) -> dict[str, dict[str, int]]:
        with self.engine.begin() as connection:
            rows = figures.totals(connection, since, _TOTALS_TIMEOUT_SECONDS)
        result: dict[str, dict[str, int]] = {priority.name: {} for priority in Priority}
        for (priority, state), count in sorted(rows.items()):
            result[Priority(priority).name][state] = count
        return result

    def _calls_per_minute(self, seconds: float) -> float:
        counts = []
        for pause in (seconds, 0.0):
            with self.engine.connect() as connection:
                counts.append((figures.calls_ever(connection), figures.server(connection).now))
            if pause:
                self.wait(pause)
        (before, began), (after, ended) = counts
        return (after - before) * 60.0 / max((ended - began).total_seconds(), 0.001)


def _oldest(rows: list[figures.Waiting]) -> float | None:
    return max((row.oldest_age_seconds for row in rows if row.oldest_age_seconds is not None), default=None)
