"""What a submission comes to, by what is known of its user."""

from collections.abc import Mapping

import pytest

from app.domain.kinds import Channel, Priority
from app.domain.users import Device, KnownUser, UserStatus
from app.services.accept.plan import plan
from app.services.accept.submission import Submission
from app.services.refusal import Refused

ALL = (Channel.EMAIL, Channel.SMS, Channel.PUSH, Channel.IN_APP)


def asked(*channels: Channel, recipients: Mapping[str, str] | None = None) -> Submission:
    return Submission("42", "orders", Priority.NORMAL, channels, "t", "b", recipients or {}, {}, {})


def user(
    status: UserStatus = UserStatus.ACTIVE, *devices: str, email: bool = True, phone: bool = True
) -> KnownUser:
    return KnownUser(status, email, phone, devices=tuple(Device(each, None) for each in devices))


def test_a_known_user_is_reached_at_own_addresses():
    """Each channel makes a delivery, and a push one for each device."""
    made = plan(asked(*ALL), user(UserStatus.ACTIVE, "d1", "d2"))
    assert [(each.channel, each.device_id) for each in made.deliveries] == [
        (Channel.EMAIL, None),
        (Channel.SMS, None),
        (Channel.PUSH, "d1"),
        (Channel.PUSH, "d2"),
        (Channel.IN_APP, None),
    ]
    assert (made.suppressed, made.recipients) == ([], {})


def test_an_explicit_recipient_goes_before_the_stored_one():
    """One push to the token that was named, and none to the devices."""
    made = plan(asked(Channel.PUSH, recipients={"PUSH": "token"}), user(UserStatus.ACTIVE, "d1"))
    assert [each.device_id for each in made.deliveries] == [None]
    assert made.recipients == {"PUSH": "token"}


def test_a_channel_without_an_address_is_named_and_the_others_go():
    """A known user who lacks an address is no error of the caller."""
    made = plan(asked(*ALL), user(email=False, phone=False))
    assert [each.channel for each in made.deliveries] == [Channel.IN_APP]
    assert [(each["channel"], each["reason"]) for each in made.suppressed] == [
        ("EMAIL", "no_address"),
        ("SMS", "no_address"),
        ("PUSH", "no_device"),
    ]


@pytest.mark.parametrize(
    ("status", "reason"), [(UserStatus.INACTIVE, "user_inactive"), (UserStatus.SUSPENDED, "user_suspended")]
)
def test_nothing_is_sent_to_who_is_not_active(status, reason):
    """Not even to an explicit recipient or the inbox."""
    made = plan(asked(*ALL, recipients={"SMS": "+447700900000"}), user(status, "d1"))
    assert made.deliveries == []
    assert {each["reason"] for each in made.suppressed} == {reason}
    assert len(made.suppressed) == 4


def test_an_unknown_user_needs_recipients_for_every_channel_but_the_inbox():
    """All that lack one are named together."""
    with pytest.raises(Refused) as refused:
        plan(asked(*ALL, recipients={"SMS": "+447700900000"}), None)
    assert refused.value.code == "DOMAIN_USER_NOT_FOUND"
    assert [each.field for each in refused.value.problems] == ["recipients.EMAIL", "recipients.PUSH"]
    made = plan(asked(Channel.IN_APP, Channel.SMS, recipients={"SMS": "+447700900000"}), None)
    assert len(made.deliveries) == 2


def test_a_bad_address_is_refused_even_if_nothing_would_be_sent():
    """The request is wrong whatever the user's status is today."""
    with pytest.raises(Refused, match="cannot be sent to"):
        plan(asked(Channel.SMS, recipients={"SMS": "12"}), user(UserStatus.INACTIVE))
