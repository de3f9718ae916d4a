"""Masking: what somebody who may not see an address is shown of it.

Enough to tell two addresses of one person apart, never enough to use one. The number of stars says nothing about
the length. Short addresses show less, so that most of each stays hidden.
"""

_STARS = "***"
_PHONE_STARS = "*****"
_SHORT_LOCAL = 3
_SHORT_LABEL = 3
_ENDING_LIMIT = 6
_SHORT_PHONE = 9
_SHORT_TOKEN = 16


def email(text: str) -> str:
    """Return `a***@e***.com` for an e-mail address: two letters and the ending of its domain at most."""
    local, at, domain = text.rpartition("@")
    if not at:
        return _STARS
    label, _, ending = domain.rpartition(".")
    first = local[0] if len(local) >= _SHORT_LOCAL else ""
    shown = label[0] if len(label) >= _SHORT_LABEL else ""
    return f"{first}{_STARS}@{shown}{_STARS}" + (f".{ending}" if label and len(ending) <= _ENDING_LIMIT else "")


def phone(text: str) -> str:
    """Return `+44*****0000` for a number in E.164: the country code or its beginning, and the last digits."""
    digits = text.removeprefix("+")
    if len(digits) < _SHORT_PHONE:
        return f"{_PHONE_STARS}{digits[-2:]}" if len(digits) > len(_PHONE_STARS) else _PHONE_STARS
    return f"+{digits[:2]}{_PHONE_STARS}{digits[-4:]}"


def token(text: str) -> str:
    """Return the first and the last four characters of a push token, nothing of a short one."""
    return f"{text[:4]}{_STARS}{text[-4:]}" if len(text) >= _SHORT_TOKEN else _STARS


_BY_CHANNEL = {"EMAIL": email, "SMS": phone, "PUSH": token}


def recipient(channel: str, text: str) -> str:
    """Return an address of a channel masked; all of it for a channel that is not known here."""
    mask = _BY_CHANNEL.get(channel)
    return _STARS if mask is None else mask(text)
