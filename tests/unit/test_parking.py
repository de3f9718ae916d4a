"""Parking: each id stands once, and no message is lost with an older one about the same id."""

import pytest

from app.services.deliver.buffers import Parking
from app.services.deliver.work import Parked


@pytest.mark.parametrize(
    ("standing", "arriving", "kept"), [(1, None, None), (None, 2, None), (1, 2, 2), (2, 1, 2), (None, None, None)]
)
def test_a_newer_message_widens_the_countdown_that_stands(standing, arriving, kept):
    """Fails when the second message is only dropped: the load drops the stale countdown too, and the row waits."""
    parking = Parking(10)
    assert parking.put([Parked("a", 0.0, standing)]) == []
    assert parking.put([Parked("a", 1.0, arriving)]) == []
    [taken] = parking.take(10, 0.0)
    assert (taken.id, taken.attempt, taken.parked_at) == ("a", kept, 0.0)


def test_an_id_that_was_put_back_stands_once():
    """What comes while its first message is being loaded stands in the same place."""
    parking = Parking(10)
    parking.put([Parked("a", 0.0, 1), Parked("b", 0.0)])
    taken = parking.take(10, 0.0)
    parking.put([Parked("a", 1.0, None)])
    parking.put_back(taken)
    assert len(parking) == 2
    assert [(one.id, one.attempt) for one in parking.take(10, 0.0)] == [("b", None), ("a", None)]
    assert len(parking) == 0


def test_a_suspect_is_taken_alone():
    """It must take no others with it."""
    parking = Parking(10)
    parking.put([Parked("a", 0.0), Parked("b", 0.0, is_suspect=True), Parked("c", 0.0)])
    assert [[one.id for one in parking.take(10, 0.0)] for _ in range(3)] == [["a"], ["b"], ["c"]]
