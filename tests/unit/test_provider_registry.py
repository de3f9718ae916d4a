"""From a URL to an adapter, and what is said about a URL that is none."""

import pytest

from providers.email.smtp import SmtpEmailProvider
from providers.null import NullProvider
from providers.push.http import HttpPushProvider
from providers.registry import build
from providers.sms.http import HttpSmsProvider

SENDER = "a@example.com"


@pytest.mark.parametrize(
    ("channel", "url", "kind", "name"),
    [
        ("SMS", "http://127.0.0.1:8025/sms", HttpSmsProvider, "http-sms"),
        ("SMS", "https://gateway.example.com/v1/sms", HttpSmsProvider, "http-sms"),
        ("PUSH", "https://gateway.example.com/push", HttpPushProvider, "http-push"),
        ("EMAIL", "smtp://127.0.0.1:2525", SmtpEmailProvider, "smtp"),
        ("EMAIL", "smtp+starttls://u:p%40ss@mail.example.com", SmtpEmailProvider, "smtp"),
        ("EMAIL", "smtps://u:p@mail.example.com?connections=5", SmtpEmailProvider, "smtp"),
        ("SMS", "null://", NullProvider, "null-sms"),
        ("EMAIL", "null://", NullProvider, "null-email"),
    ],
)
def test_scheme_chooses_the_adapter(channel, url, kind, name):
    """The name is what attempts and limits are kept under."""
    provider = build(channel, url, sender=SENDER)
    assert isinstance(provider, kind)
    assert provider.name == name


def test_name_can_be_given():
    """Two gateways of one kind keep their limits apart."""
    assert build("SMS", "http://g.example/sms", name="acme").name == "acme"


@pytest.mark.parametrize(
    ("channel", "url", "says"),
    [
        ("SMS", "smtp://127.0.0.1", "http://HOST/PATH"),
        ("SMS", "", "http://HOST/PATH"),
        ("SMS", "http://", "http://HOST/PATH"),
        ("PUSH", "https://key:secret@g.example/push", "as its token"),
        ("EMAIL", "http://127.0.0.1", "smtp://HOST:PORT"),
        ("EMAIL", "smtp://u:secret@mail.example.com", "in clear"),
        ("EMAIL", "smtp://127.0.0.1?connections=0", "at least 1"),
        ("EMAIL", "smtp://127.0.0.1:2525x", "Port"),
        ("FAX", "http://g.example", "EMAIL, SMS, PUSH"),
    ],
)
def test_unusable_url_is_explained(channel, url, says):
    """Case G11. The text says what to write instead, and never repeats a secret."""
    with pytest.raises(ValueError, match=says) as caught:
        build(channel, url, sender=SENDER)
    assert "secret" not in str(caught.value)


def test_unusable_sender_is_explained():
    """A wrong EMAIL_SENDER is found at start, not at the first mail."""
    with pytest.raises(ValueError, match="local@domain"):
        build("EMAIL", "smtp://127.0.0.1", sender="nobody")
