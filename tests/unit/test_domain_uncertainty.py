"""What becomes of a call that may have been accepted, by channel and priority."""

import pytest

from app.domain.kinds import Channel, Priority
from app.domain.uncertainty import Policy, default_policy

HELD = {(Channel.SMS, Priority.NORMAL), (Channel.SMS, Priority.LOW)}


@pytest.mark.parametrize("channel", Channel)
@pytest.mark.parametrize("priority", Priority)
def test_only_sms_that_is_not_urgent_is_held(channel, priority):
    """A second SMS costs money; a one-time code that never came costs a customer; the rest hides its double."""
    expected = Policy.HOLD if (channel, priority) in HELD else Policy.RESEND
    assert default_policy(channel, priority) is expected


def test_priorities_sort_by_urgency_and_are_stored_as_numbers():
    """HIGH is 0, as the table has it: ORDER BY priority puts it first."""
    assert [(priority.name, int(priority)) for priority in sorted(Priority)] == [
        ("HIGH", 0),
        ("NORMAL", 1),
        ("LOW", 2),
    ]
