"""Entry of the relay: ticks of beat and nudges of the API arrive here."""

from app.celery_app import task
from app.domain.kinds import Priority
from app.queues import TASK_RELAY
from app.settings import get_settings
from app.wiring import relay_services


@task(TASK_RELAY)
def relay(v: int, priority: str) -> None:
    """Publish what is due of one priority."""
    del v
    services = relay_services(get_settings())
    services.nudge.taken(Priority[priority])
    services.relay.run(Priority[priority])
