"""How Celery carries ids from the bridge to the workers, and the ticks from beat to the relay.

Read by `app.celery_app`. The delivery protocol relies on most of what stands here: late acknowledgement, one
message ahead, and one plain first-in-first-out list a queue, so that a marker cannot overtake ids. A worker that
is started with a setting that breaks this refuses (`app.celery_app.unsafe_settings`).
"""

from typing import Any

from kombu import Exchange, Queue

from app.domain.kinds import Priority
from app.queues import (
    BATCH_QUEUE,
    LANES,
    RELAY_QUEUE,
    TASK_ERASE,
    TASK_EXPAND,
    TASK_PARTITIONS,
    TASK_PRUNE,
    TASK_RELAY,
    TASK_RESCUE,
)
from app.settings import get_settings

_settings = get_settings()


# The broker. Every socket operation has a limit, so that a paused Redis stops nobody for ever.
broker_url = _settings.celery_broker_url
broker_connection_retry_on_startup = True
broker_connection_max_retries = None
broker_channel_error_retry = True
broker_transport_options: dict[str, Any] = {
    "visibility_timeout": _settings.visibility_timeout_seconds,
    "priority_steps": [0],
    "socket_timeout": 15.0,
    "socket_connect_timeout": 3.0,
    "socket_keepalive": True,
    "health_check_interval": 10,
}
task_publish_retry_policy = {"max_retries": 3, "interval_start": 0.1, "interval_step": 0.3, "interval_max": 1.0}

# Queues: a worker names its own with -Q; none is created by a misspelt name.
task_queues = [
    Queue(name, Exchange(name), routing_key=name)
    for name in (*(lane.queue for lane in LANES.values()), RELAY_QUEUE, BATCH_QUEUE)
]
task_default_queue = RELAY_QUEUE
task_default_exchange = RELAY_QUEUE
task_default_routing_key = RELAY_QUEUE
task_create_missing_queues = False

# Messages are JSON that carries ids, and nobody waits for a result.
task_serializer = "json"
accept_content = ["json"]
task_ignore_result = True
task_store_errors_even_if_ignored = False
enable_utc = True
timezone = "UTC"

# Workers. Neither pool option below may change without a new run of the protocol's tests.
worker_pool = "threads"
worker_concurrency = 4
worker_prefetch_multiplier = 1
task_acks_late = True
task_reject_on_worker_lost = False
worker_hijack_root_logger = False
worker_redirect_stdouts = False
worker_enable_remote_control = True

# Flower draws the queues from these events; at a chunk of ids a task they cost nothing that can be measured.
worker_send_task_events = True
task_send_sent_event = False

# Beat. None of these messages has an `expires`: it compares the clocks of two machines, and a relay whose clock is
# ahead would take no tick at all. Ticks of relay and expander coalesce in the scheduler, the others where they
# arrive.
beat_scheduler = "tasks.scheduler:NudgingScheduler"
beat_schedule: dict[str, dict[str, Any]] = {
    f"relay-{priority.name.lower()}": {
        "task": TASK_RELAY,
        "schedule": _settings.relay_tick_seconds,
        "kwargs": {"v": 1, "priority": priority.name},
        "options": {"queue": RELAY_QUEUE},
    }
    for priority in Priority
}
for _name, _task, _seconds in (
    ("rescue", TASK_RESCUE, _settings.rescue_interval_seconds),
    ("partitions", TASK_PARTITIONS, _settings.partitions_interval_seconds),
    ("prune", TASK_PRUNE, _settings.prune_interval_seconds),
    ("erase", TASK_ERASE, _settings.erasure_interval_seconds),
):
    beat_schedule[_name] = {
        "task": _task,
        "schedule": _seconds,
        "kwargs": {"v": 1},
        "options": {"queue": RELAY_QUEUE},
    }
beat_schedule["expand"] = {
    "task": TASK_EXPAND,
    "schedule": _settings.batch_tick_seconds,
    "kwargs": {"v": 1},
    "options": {"queue": BATCH_QUEUE},
}
