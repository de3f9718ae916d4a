"""What each answer of a generic HTTP gateway means: data only, read by `providers.http`.

The error code in the body is more exact than the status and wins. A status without an entry of its own falls
to its family. 500 is a retry: the gateway answered that it failed. 502 and 504 come from something before the
gateway, which passed the request on and lost the answer: whether the message was taken is not known.
"""

from collections.abc import Mapping

from providers.outcome import Scope
from providers.verdict import Meaning, Verdict


def _says(meaning: Meaning, code: str, scope: Scope = Scope.MESSAGE) -> Verdict:
    return Verdict(meaning, code, scope)


BY_STATUS: Mapping[int, Verdict] = {
    400: _says(Meaning.REJECTED, "invalid_message"),
    401: _says(Meaning.MISCONFIGURED, "unauthorized", Scope.ACCOUNT),
    402: _says(Meaning.MISCONFIGURED, "payment_required", Scope.ACCOUNT),
    403: _says(Meaning.MISCONFIGURED, "forbidden", Scope.ACCOUNT),
    404: _says(Meaning.MISCONFIGURED, "wrong_address", Scope.ACCOUNT),
    405: _says(Meaning.MISCONFIGURED, "wrong_address", Scope.ACCOUNT),
    407: _says(Meaning.MISCONFIGURED, "proxy_unauthorized", Scope.ACCOUNT),
    408: _says(Meaning.RETRY, "request_timeout", Scope.PROVIDER),
    409: _says(Meaning.UNKNOWN, "conflict"),
    410: _says(Meaning.GONE, "recipient_gone", Scope.RECIPIENT),
    413: _says(Meaning.REJECTED, "too_large"),
    421: _says(Meaning.RETRY, "misdirected", Scope.PROVIDER),
    425: _says(Meaning.RETRY, "too_early", Scope.PROVIDER),
    429: _says(Meaning.THROTTLED, "throttled", Scope.ACCOUNT),
    500: _says(Meaning.RETRY, "server_error", Scope.PROVIDER),
    501: _says(Meaning.MISCONFIGURED, "wrong_address", Scope.ACCOUNT),
    502: _says(Meaning.UNKNOWN, "bad_gateway", Scope.PROVIDER),
    503: _says(Meaning.RETRY, "unavailable", Scope.PROVIDER),
    504: _says(Meaning.UNKNOWN, "gateway_timeout", Scope.PROVIDER),
}

BY_FAMILY: Mapping[int, Verdict] = {
    1: _says(Meaning.UNKNOWN, "unexpected_answer", Scope.PROVIDER),
    2: _says(Meaning.ACCEPTED, "accepted"),
    3: _says(Meaning.MISCONFIGURED, "redirected", Scope.ACCOUNT),
    4: _says(Meaning.REJECTED, "refused"),
    5: _says(Meaning.RETRY, "server_error", Scope.PROVIDER),
}

BY_CODE: Mapping[str, Verdict] = {
    "recipient_gone": _says(Meaning.GONE, "recipient_gone", Scope.RECIPIENT),
    "no_such_recipient": _says(Meaning.GONE, "recipient_gone", Scope.RECIPIENT),
    "unregistered": _says(Meaning.GONE, "recipient_gone", Scope.RECIPIENT),
    "invalid_recipient": _says(Meaning.REJECTED, "invalid_recipient", Scope.RECIPIENT),
    "recipient_opted_out": _says(Meaning.REJECTED, "recipient_opted_out", Scope.RECIPIENT),
    "sender_refused": _says(Meaning.MISCONFIGURED, "sender_refused", Scope.SENDER),
    "throttled": _says(Meaning.THROTTLED, "throttled", Scope.ACCOUNT),
    "rate_limited": _says(Meaning.THROTTLED, "rate_limited", Scope.ACCOUNT),
    "quota_exceeded": _says(Meaning.THROTTLED, "quota_exceeded", Scope.ACCOUNT),
    "duplicate": _says(Meaning.ACCEPTED, "duplicate"),
}


def verdict_of(status: int, code: str = "") -> Verdict:
    """Return what this status means, together with the error code of the body (empty when there is none)."""
    if code and not 200 <= status < 300:  # noqa: PLR2004  the family that is success whatever the body says
        known = BY_CODE.get(code)
        if known is not None:
            return known
    return BY_STATUS.get(status) or BY_FAMILY.get(status // 100) or BY_FAMILY[1]
