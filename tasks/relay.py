"""Entry of the relay: ticks of beat and nudges of the API arrive here."""

import threading
from typing import Any

from celery.signals import worker_init

from app.celery_app import task
from app.domain.kinds import Priority
from app.observability.logging import get_logger
from app.queues import RELAY_QUEUE, TASK_RELAY
from app.settings import get_settings
from app.wiring_pipeline import relay_services

_log = get_logger(__name__)
_WARM_UP_SECONDS = 60.0


# Its events would cost more than the run itself, many times a second, and show nothing that the metrics do not.
@task(TASK_RELAY, send_events=False)
def relay(v: int, priority: str) -> None:
    """Publish what is due of one priority."""
    del v
    services = relay_services(get_settings())
    services.nudge.taken(Priority[priority])
    services.relay.run(Priority[priority])


def _warm_up(sender: Any, **_: Any) -> None:
    """Open the pipe in a thread: ticks need not wait for a broker that is still starting."""
    if RELAY_QUEUE in sender.app.amqp.queues.consume_from:
        threading.Thread(target=_open_pipe, name="warm-up", daemon=True).start()


def _open_pipe() -> None:
    try:
        relay_services(get_settings()).markers.open_pipe(_WARM_UP_SECONDS)
    except Exception as error:  # noqa: BLE001  the first message opens what this could not
        _log.info("warm_up_failed", reason=type(error).__name__)


worker_init.connect(_warm_up, weak=False)
