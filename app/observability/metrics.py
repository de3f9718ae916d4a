"""The one catalogue of metrics. A metric that is used anywhere is declared here, with labels from closed sets.

Labels never carry a tenant, an id or an address: the number of series stays bounded whatever is sent.

A bridge, a stream process or a Celery worker can open a port of its own (`METRICS_PORT`); several on one machine
take the next free ones. The API answers `/metrics` itself. Processes that share a port need
`PROMETHEUS_MULTIPROC_DIR` (an empty folder, set before the start): the client library keeps every number in files
of that folder, so that any of them can answer with the sum; who finds the port taken is content. Gauges then show
what was written last.
"""

import errno
from collections.abc import Callable
from functools import partial
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    start_http_server,
)
from prometheus_client.multiprocess import MultiProcessCollector  # type: ignore[attr-defined, unused-ignore]

from app.observability.logging import get_logger
from app.settings import Settings

_PORTS_TRIED = 32
_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)

# Accept
HTTP_REQUEST_SECONDS = Histogram(
    "http_request_duration_seconds", "Requests by route and status", ("method", "route", "status"), buckets=_FAST
)
ACCEPTED = Counter("notification_accepted_total", "Deliveries accepted", ("channel", "priority"))
SUPPRESSED = Counter("notification_suppressed_total", "Channels without a delivery", ("channel", "reason"))
REPLAYED = Counter("notification_replayed_total", "Requests answered again from their idempotency key")
CANCELLED = Counter("notification_cancelled_total", "Deliveries cancelled by a user")
SUPERSEDED = Counter("delivery_superseded_total", "Deliveries that gave way to a newer notification", ("result",))
CAPPED = Counter("notification_capped_total", "Channels suppressed by a frequency cap", ("channel",))
ISSUER_FETCHES = Counter("issuer_keys_fetched_total", "Fetches of the token issuer's public keys", ("outcome",))
NUDGES = Counter("relay_nudge_total", "Nudges of the relay after a commit", ("result",))

# Batches
BATCH_EXPANDED = Counter("batch_expanded_total", "Notifications made from batches")
BATCH_REJECTED = Counter("batch_rejected_total", "Rows of batches that made no notification")
BATCH_CHUNK_SECONDS = Histogram("batch_chunk_seconds", "One chunk, from lock to commit", buckets=_FAST)

# Relay
RELAY_PUBLISHED = Counter("relay_published_total", "Deliveries published", ("channel", "priority"))
RELAY_BATCH_SECONDS = Histogram(
    "relay_batch_seconds", "One batch, from lock to commit", ("priority",), buckets=_FAST
)
RELAY_FAILED = Counter("relay_failed_total", "Batches rolled back", ("reason",))
RELAY_MARKERS = Counter("relay_markers_total", "Markers produced", ("priority",))
OLDEST_DUE_AGE = Gauge(
    "oldest_due_age_seconds", "Age of the oldest due row", ("priority",), multiprocess_mode="mostrecent"
)
IN_PIPE = Gauge("relay_in_pipe", "Rows QUEUED", ("channel", "priority"), multiprocess_mode="mostrecent")
PUBLISH_LAG_SECONDS = Histogram(
    "relay_publish_lag_seconds", "From due to published", ("priority",), buckets=(*_FAST, 60.0, 300.0)
)

# Bridge
BRIDGE_ENQUEUED = Counter("bridge_enqueued_total", "Deliveries put into a Celery list", ("channel", "priority"))
BRIDGE_CHUNK = Histogram("bridge_chunk_size", "Deliveries a task", ("priority",), buckets=_SIZES)
BRIDGE_DEAD_LETTERED = Counter("bridge_dead_lettered_total", "Records set aside", ("topic", "reason"))
BRIDGE_PAUSED = Gauge(
    "bridge_paused", "1 while a topic is paused by back-pressure", ("topic",), multiprocess_mode="mostrecent"
)
BRIDGE_MARKERS = Counter("bridge_markers_total", "Markers handed on", ("topic",))
BRIDGE_ERRORS = Counter("bridge_errors_total", "Expected failures that the bridge waits out", ("reason",))

# Worker
SENT = Counter(
    "notification_sent_total", "Provider calls by outcome", ("channel", "provider", "outcome", "priority")
)
SEND_SECONDS = Histogram(
    "notification_send_duration_seconds", "One provider call", ("channel", "provider"), buckets=_FAST
)
END_TO_END_SECONDS = Histogram(
    "notification_end_to_end_seconds",
    "From due to the provider's answer, first calls only",
    ("channel", "priority"),
    buckets=(*_FAST, 60.0, 300.0, 3600.0),
)
CLAIM_LOST = Counter("delivery_claim_lost_total", "Ids whose claim found nothing to do", ("priority",))
RECORD_LOST = Counter("delivery_record_lost_total", "Outcomes that were not ours to record any more", ("outcome",))
DEFERRED = Counter("delivery_deferred_total", "Deferrals; they cost no attempt", ("reason",))
WOKEN = Counter("delivery_ordering_woken_total", "Ordered deliveries made due when the one before ended")
GIVEN_BACK = Counter("delivery_given_back_total", "Claims given back before a call", ("reason",))
WITHHELD = Counter(
    "delivery_withheld_total", "Called off right before the send: the person's mind changed", ("channel", "reason")
)
UNRENDERABLE = Counter("delivery_unrenderable_total", "Deliveries that could not be rendered", ("channel",))
GUARD_REFUSED = Counter("guard_refused_total", "The database forgot a claim: look at it at once")
PARKED = Gauge("worker_parked", "Ids waiting unclaimed in a worker", ("channel",), multiprocess_mode="livesum")
IN_FLIGHT = Gauge("worker_in_flight", "Calls in flight", ("channel",), multiprocess_mode="livesum")
COUNTDOWNS = Counter("delivery_countdown_total", "Retries that asked for a countdown", ("result",))
RECORD_SECONDS = Histogram("worker_record_seconds", "One batch of outcomes recorded", buckets=_FAST)

# Streams
STREAMS_OPEN = Gauge("inbox_streams_open", "Streams open now", multiprocess_mode="livesum")
STREAM_EVENTS = Counter("inbox_stream_events_total", "Events handed to streams, once a stream")
STREAM_DROPPED = Counter(
    "inbox_stream_dropped_total", "Events that a stream was not given; `slow` ones became a sync", ("reason",)
)
STREAMS_ENDED = Counter("inbox_stream_ended_total", "Streams that ended", ("reason",))
STREAMS_REFUSED = Counter("inbox_stream_refused_total", "Streams that were not opened", ("status",))
STREAM_RECONNECTS = Counter("inbox_stream_redis_lost_total", "Connections to Redis lost or not made")

# Recovery
RESCUED = Counter("delivery_rescued_total", "Rows brought back from a dead hop", ("state",))
RESOLVED = Counter("delivery_resolved_total", "UNKNOWN rows decided", ("how",))
FALLBACKS = Counter("fallback_decided_total", "Steps of chains made or dropped", ("channel", "reason"))
EXPIRED = Counter("delivery_expired_total", "Rows whose deadline passed before a call")
RECEIPTS = Counter("receipt_total", "Receipts by what they did", ("result",))
REPLAYED_DELIVERIES = Counter("delivery_replayed_total", "FAILED rows that an operator sent again")

# Limits
RATE_GRANTED = Counter("rate_granted_total", "Tokens granted", ("provider", "channel", "priority"))
RATE_REFUSED = Counter(
    "rate_refused_total",
    "Tokens asked for and not granted, once a request for them",
    ("provider", "channel", "priority"),
)
REQUESTS_LIMITED = Counter("request_limited_total", "Requests answered with 429", ("limit",))
CIRCUIT_OPENED = Counter("redis_circuit_opened_total", "Outages of a Redis that requests pass over", ("name",))
BREAKER_STATE = Gauge(
    "breaker_state", "0 closed, 1 half-open, 2 open", ("provider",), multiprocess_mode="mostrecent"
)

# Cache
CACHE_LOOKS = Counter("cache_looks_total", "Look-ups in the cache by what was found", ("namespace", "result"))
CACHE_COMMANDS = Counter("cache_commands_total", "Commands that nobody waits for, events too", ("result",))

# Upkeep
PARTITIONS_AHEAD = Gauge(
    "partitions_ahead_days", "Days from today that have their partitions", multiprocess_mode="mostrecent"
)
PARTITIONS_DROPPED = Counter("partitions_dropped_total", "Days dropped by retention")
UPKEEP_LAST_RUN = Gauge(
    "upkeep_last_run_timestamp_seconds", "When upkeep last succeeded", ("step",), multiprocess_mode="mostrecent"
)

_log = get_logger(__name__)


def _registry(directory: str) -> CollectorRegistry:
    if not directory:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=directory)  # type: ignore[no-untyped-call, unused-ignore]
    return registry


def exposition(settings: Settings) -> bytes:
    """Return all metrics in Prometheus' text format: of this process, or of all that share the folder."""
    return generate_latest(_registry(settings.prometheus_multiproc_dir))


def serve(settings: Settings) -> Callable[[], None] | None:
    """Open the Prometheus port when METRICS_PORT > 0; return what closes it, or None when nothing was opened.

    Without a shared folder a taken port means another process of ours on this machine: the next free of 32 is used
    and logged. With one it means that a sibling serves for all.
    """
    if settings.metrics_port == 0:
        return None
    shared = settings.prometheus_multiproc_dir
    last = settings.metrics_port + (1 if shared else _PORTS_TRIED)
    for port in range(settings.metrics_port, last):
        try:
            server, thread = start_http_server(port, addr=settings.metrics_host, registry=_registry(shared))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            continue

        _log.info("metrics_served", port=port)
        return partial(_close, server, thread)
    _log.info("metrics_port_taken", port=settings.metrics_port, served_by_sibling=bool(shared))
    return None


def _close(server: WSGIServer, thread: Thread) -> None:
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)
