"""Entry of the markers: the proof that all that was before them in their list was taken or lost."""

from app.celery_app import task
from app.queues import TASK_MARK
from app.settings import get_settings
from app.wiring_worker import worker


@task(TASK_MARK)
def mark(v: int, topic: str, partition: int, seq: int) -> None:
    """Write down that marker `seq` of a partition came through."""
    del v
    worker(get_settings()).mark(topic, partition, seq)
