"""From a URL to an adapter: the only place that knows which schemes there are."""

from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from providers.base import Provider
from providers.email.connections import CONNECTIONS, Endpoint
from providers.email.mime import InvalidAddressError
from providers.email.smtp import SmtpEmailProvider
from providers.in_app.store import InAppProvider
from providers.null import NullProvider
from providers.push.http import HttpPushProvider
from providers.sms.http import HttpSmsProvider

_SMTP = {"smtp": ("none", 25), "smtp+starttls": ("starttls", 587), "smtps": ("implicit", 465)}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HTTP: dict[str, type[HttpSmsProvider | HttpPushProvider]] = {"SMS": HttpSmsProvider, "PUSH": HttpPushProvider}


def build(
    channel: str, url: str, *, token: str = "", sender: str = "", timeout_seconds: float = 20.0, name: str = ""
) -> Provider:
    """Return the adapter for a channel and a URL; raise ValueError saying what to change.

    E-mail takes `smtp://`, `smtp+starttls://` and `smtps://` with `user:password@` and `?connections=N`; SMS and
    push take `http://` and `https://`, posted to as they stand; `null://` takes all and sends nothing. In-app has
    no URL. `name` overrides the name under which attempts and limits are kept.
    """
    if channel == "IN_APP":
        return InAppProvider()
    parts = urlsplit(url)
    if parts.scheme == "null":
        return NullProvider(name or f"null-{channel.lower()}")
    if channel == "EMAIL":
        return _email(parts, sender, timeout_seconds, name)
    adapter = _HTTP.get(channel)
    if adapter is None:
        raise ValueError(f"{channel!r} is no channel with a provider: use EMAIL, SMS, PUSH or IN_APP")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(
            f"the {channel} provider must be http://HOST/PATH, https://HOST/PATH or null://, not {_shown(parts)!r}"
        )
    if parts.username or parts.password:
        raise ValueError(f"give the {channel} provider's credential as its token, not inside the URL")
    return adapter(url, token, sender, timeout_seconds, name or f"http-{channel.lower()}")


def _email(parts: SplitResult, sender: str, timeout_seconds: float, name: str) -> Provider:
    if parts.scheme not in _SMTP or not parts.hostname:
        raise ValueError(
            "the EMAIL provider must be smtp://HOST:PORT, smtp+starttls://USER:PASSWORD@HOST:587, "
            f"smtps://USER:PASSWORD@HOST:465 or null://, not {_shown(parts)!r}"
        )
    tls, default_port = _SMTP[parts.scheme]
    if parts.username and tls == "none" and parts.hostname not in _LOOPBACK:
        raise ValueError(
            "a password would travel in clear: use smtp+starttls:// or smtps:// for the EMAIL provider"
        )
    endpoint = Endpoint(
        host=parts.hostname,
        port=parts.port or default_port,
        tls=tls,
        username=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        connections=_connections(parts.query),
    )
    try:
        return SmtpEmailProvider(endpoint, sender, timeout_seconds, name or "smtp")
    except InvalidAddressError as error:
        raise ValueError(f"the e-mail sender must be local@domain or Name <local@domain>: {error}") from error


def _connections(query: str) -> int:
    given = parse_qs(query).get("connections", [str(CONNECTIONS)])[-1]
    if not given.isdigit() or int(given) < 1:
        raise ValueError("?connections= of the EMAIL provider must be a whole number of at least 1")
    return int(given)


def _shown(parts: SplitResult) -> str:
    """Return the URL without its credentials."""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
