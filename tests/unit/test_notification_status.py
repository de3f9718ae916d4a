"""The status of a notification, derived from its deliveries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.states import OPEN, DeliveryState
from app.domain.summary import NotificationStatus, summarise

S = DeliveryState
N = NotificationStatus


@pytest.mark.parametrize(
    ("states", "status"),
    [
        ([], N.SUPPRESSED),
        ([S.PENDING], N.ACCEPTED),
        ([S.SENDING, S.UNKNOWN, S.QUEUED], N.ACCEPTED),
        ([S.SENT, S.PENDING], N.IN_PROGRESS),
        ([S.FAILED, S.UNKNOWN], N.IN_PROGRESS),
        ([S.SENT], N.COMPLETED),
        ([S.SENT, S.DELIVERED], N.COMPLETED),
        ([S.SENT, S.FAILED], N.PARTIAL),
        ([S.DELIVERED, S.CANCELLED], N.PARTIAL),
        ([S.FAILED, S.CANCELLED, S.EXPIRED], N.FAILED),
        ([S.CANCELLED, S.EXPIRED], N.CANCELLED),
        ([S.EXPIRED, S.EXPIRED], N.EXPIRED),
    ],
)
def test_summary(states: list[DeliveryState], status: NotificationStatus) -> None:
    """One line of the table each."""
    assert summarise(states) is status


@given(st.lists(st.sampled_from(DeliveryState), min_size=1, max_size=6))
def test_a_notification_is_open_exactly_while_one_of_its_deliveries_is(states: list[DeliveryState]) -> None:
    """The order does not matter, and SUPPRESSED is for none at all."""
    status = summarise(states)
    assert status is summarise(sorted(states))
    assert (status in {N.ACCEPTED, N.IN_PROGRESS}) == any(state in OPEN for state in states)
    assert status is not N.SUPPRESSED
