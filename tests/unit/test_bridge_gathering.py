"""How long the bridge lets ids gather before a push: a rule of time, so the clock and the consumer are made up."""

from threading import Event

from app.bridge.loop import BridgeLimits, TopicLoop
from app.domain.envelope import DeliveryDue
from app.domain.ids import mint
from app.domain.kinds import Channel, Priority
from app.queues import LANES

NORMAL = LANES[Priority.NORMAL]


class Record:
    """What the bridge asks of a Kafka message."""

    def value(self):
        first, second = (str(each) for each in mint(2))
        return DeliveryDue(first, first, second, Channel.SMS, Priority.NORMAL, "t").encode()

    def key(self):
        return b"key"

    def topic(self):
        return NORMAL.topic

    def partition(self):
        return 0

    def offset(self):
        return 7


class Clock:
    """Stands still until it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Consumer:
    """Has a record at the first poll, none in the minute of the second; at the third the loop is told to stop."""

    def __init__(self, clock, stop):
        self.gathered = []
        self._clock, self._stop = clock, stop

    def poll(self, most, wait_seconds, gather_seconds):
        self.gathered.append(round(gather_seconds, 6))
        if len(self.gathered) == 1:
            return [Record()]
        if len(self.gathered) == 3:
            self._stop.set()
        self._clock.now += 60.0
        return []

    def commit(self, offsets, *, wait=False):
        """Nothing is kept."""

    def close(self):
        """Nothing is open."""


class Lists:
    """Takes every task."""

    def push(self, queue, tasks):
        """It is taken."""

    def length(self, queue):
        return 0


def test_ids_gather_after_a_push_and_not_after_a_quiet_moment():
    """Fails when each record is pushed as it comes, or when the first one after a pause has to wait for others."""
    clock, stop = Clock(), Event()
    consumer = Consumer(clock, stop)
    limits = BridgeLimits(batch=100, chunk=50, high_water=1000, poison_stop=100)
    TopicLoop(NORMAL, lambda _: consumer, Lists(), None, limits=limits, stop=stop, joined=print, clock=clock).run()
    assert consumer.gathered == [0.0, NORMAL.gather_seconds, 0.0]
    assert NORMAL.gather_seconds > 0


def test_no_lane_lets_urgent_ids_gather_longer_than_others():
    """HIGH waits least."""
    waits = [LANES[priority].gather_seconds for priority in (Priority.HIGH, Priority.NORMAL, Priority.LOW)]
    assert waits == sorted(waits)
