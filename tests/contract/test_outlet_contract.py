"""One contract for every outlet: Kafka, the Celery lists, and the recording one of the tests."""

import pytest

from app.db.outbox import Due
from app.domain.ids import mint
from app.domain.kinds import Channel, Priority
from app.services.outlets import DirectOutlet, Outlet
from app.services.task_list import TaskList
from tests.pipeline_parts import RecordingOutlet, kafka_outlet

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=["kafka", "direct", "recording"])
def outlet(request, make_settings) -> Outlet:
    if request.param == "kafka":
        return kafka_outlet(make_settings(database_url="", redis_url=""))
    if request.param == "direct":
        return DirectOutlet(TaskList(request.getfixturevalue("redis_client")), dict.fromkeys(Priority, 50))
    return RecordingOutlet()


def rows(count: int, rescues: int = 0) -> list[Due]:
    return [Due(str(number), str(number), "demo", rescues, 0.0) for number in mint(count)]


def test_each_row_gets_a_verdict_in_its_place(outlet):
    """As many verdicts as rows, None for each that was acknowledged."""
    for priority in Priority:
        assert outlet.publish(priority, Channel.SMS, rows(120) + rows(3, rescues=1), 10.0) == [None] * 123


def test_a_marker_goes_to_every_partition_that_is_named(outlet):
    """The number of partitions is known, and a marker to all of them is acknowledged."""
    partitions = outlet.partitions(Priority.HIGH)
    assert partitions
    assert outlet.mark(Priority.HIGH, 1, partitions, 10.0)


def test_each_priority_has_its_own_topic(outlet):
    """Markers of one priority never count for another one."""
    assert len({outlet.topic(priority) for priority in Priority}) == 3
