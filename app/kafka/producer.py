"""The producer: a record counts as published only by its own delivery report.

Invariants: `publish` returns one verdict a record and never outlives its time; the client is built on first use in
the process that uses it, since a client made before a fork has no threads in the child; a client that met a fatal
error is replaced; and one `Publisher` belongs to one priority, so that HIGH never waits for LOW's flush.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from time import monotonic

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from app.kafka.client import client_settings
from app.observability.logging import get_logger
from app.settings import Settings

_log = get_logger(__name__)

ABOUT_THE_RECORD = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError._BAD_MSG,  # noqa: SLF001  librdkafka's own codes carry an underscore
        KafkaError._INVALID_ARG,  # noqa: SLF001
    }
)


@dataclass(frozen=True, slots=True)
class Record:
    """One record to produce; without a `partition` the key chooses."""

    topic: str
    value: bytes
    key: str | None = None
    partition: int = -1
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a record was not acknowledged. `about_record`: it alone is at fault, and would be refused again."""

    reason: str
    about_record: bool


class Publisher:
    """A lazily built, idempotent producer. `publish` may be called by one thread at a time; the others wait."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._producer: Producer | None = None
        self._owner = 0
        self._is_broken = False

    def publish(self, records: Sequence[Record], within_seconds: float) -> list[Refusal | None]:
        """Produce `records`, wait for every report; return None for each acknowledged one, else its refusal.

        What has no report when `within_seconds` are over counts as refused: it may still arrive, as a repetition.
        Raises nothing that a broker can cause.
        """
        deadline = monotonic() + within_seconds
        verdicts: list[Refusal | None] = [_NO_REPORT] * len(records)
        with self._lock:
            producer = self._client()
            for number, record in enumerate(records):
                refusal = self._produce(producer, record, partial(_report, verdicts, number), deadline)
                if refusal is not None:
                    verdicts[number] = refusal
            # A flush sends at once: it does not wait for `linger.ms`.
            producer.flush(max(deadline - monotonic(), 0.001))
            if any(verdict is not None for verdict in verdicts):
                # What was not even sent shall not be sent later: its row will be published again.
                producer.purge(in_queue=True, in_flight=False, blocking=False)
                producer.poll(0)
            # From here on a late report may not change a verdict that the caller has seen.
            return list(verdicts)

    def partitions(self, topic: str, timeout_seconds: float = 2.0) -> int | None:
        """Return how many partitions the cluster names now, or None when it cannot be asked."""
        with self._lock:
            producer = self._client()
        try:
            # The whole list: to ask for one topic could create it, with the broker's default of partitions.
            found = producer.list_topics(timeout=timeout_seconds).topics.get(topic)
        except KafkaException as error:
            _log.info("kafka_metadata_unavailable", topic=topic, reason=error.args[0].name())
            return None
        return len(found.partitions) if found is not None and found.error is None and found.partitions else None

    def close(self, within_seconds: float = 5.0) -> None:
        """Flush and drop the client."""
        with self._lock:
            if self._producer is not None and self._owner == os.getpid():
                self._producer.flush(within_seconds)
            self._producer = None

    def _client(self) -> Producer:
        if self._producer is not None and self._owner != os.getpid():
            # Made before a fork: its threads stayed with the parent, and to end it here would wait for them.
            _INHERITED.append(self._producer)
            self._producer = None
        if self._producer is None or self._is_broken:
            self._producer = Producer(self._configuration())
            self._owner = os.getpid()
            self._is_broken = False
        return self._producer

    def _configuration(self) -> dict[str, object]:
        # The client gives a message up before the relay gives the batch up, so that the report comes in time.
        give_up = max(int(self._settings.relay_acknowledge_seconds * 900), 1000)
        return client_settings(
            self._settings,
            acks="all",
            enable_idempotence=True,
            compression_type="lz4",
            linger_ms=5,
            message_timeout_ms=give_up,
            request_timeout_ms=min(give_up, 5_000),
            queue_buffering_max_messages=100_000,
        ) | {"error_cb": self._on_error}

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            # Every later message of this client would fail: the next publish builds a new one.
            self._is_broken = True
            _log.error("producer_fatal", reason=error.name())
        else:
            _log.debug("producer_error", reason=error.name())

    def _produce(
        self, producer: Producer, record: Record, report: "partial[None]", deadline: float
    ) -> Refusal | None:
        while True:
            try:
                producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=report,
                    headers=list(record.headers),
                )
            except BufferError:
                if monotonic() >= deadline:
                    return _NO_REPORT
                producer.poll(0.05)
            except KafkaException as error:
                self._on_error(error.args[0])
                return _refusal(error.args[0])
            else:
                return None


_INHERITED: list[Producer] = []
_NO_REPORT = Refusal("kafka: no report in time", about_record=False)


def _report(verdicts: list[Refusal | None], number: int, error: KafkaError | None, _message: Message) -> None:
    verdicts[number] = None if error is None else _refusal(error)


def _refusal(error: KafkaError) -> Refusal:
    return Refusal(f"kafka: {error.name()}", about_record=error.code() in ABOUT_THE_RECORD)
