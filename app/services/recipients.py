"""Addresses: what a channel can be sent to, in the one form that is stored and compared.

A phone number is kept as E.164 and an e-mail address as the library normalises it, so that two spellings of one
recipient are one recipient. Numbers are checked for a possible length only: whether one is assigned is for the
provider to say, and new ranges appear faster than any list of them.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import phonenumbers
from email_validator import EmailNotValidError, validate_email

from app.domain.kinds import Channel

_REMEMBERED = 16_384
_E164 = re.compile(r"\+[1-9][0-9]{6,14}")
_PLAIN_LOCAL = re.compile(r"[A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*")
_LOCAL_LIMIT = 64
_ADDRESS_LIMIT = 254
_PUSH_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")


class InvalidRecipientError(ValueError):
    """The text is no address of its channel; the message says why and never repeats the address."""


def phone_number(text: str, region: str | None = None) -> str:
    """Return the number as E.164, with a national trunk zero dropped; raise InvalidRecipientError.

    With a `region`, two letters of ISO 3166, a number may also be written as it is dialled there.

    The library takes 50 µs a number, and most are E.164 already. Those whose country allows their length and whose
    digits cannot begin with a prefix that the library would drop come back as they are.
    """
    if _E164.fullmatch(text):
        for end in (2, 3, 4):
            if (country := _country(text[1:end])) is not None:
                if country.takes(text[end:]):
                    return text
                break
    return _parsed(text, region)


class _Country(NamedTuple):
    """What the library knows of a calling code: national lengths, and what it drops from the front."""

    lengths: frozenset[int]
    prefix: re.Pattern[str]

    def takes(self, national: str) -> bool:
        return len(national) in self.lengths and not self.prefix.match(national)


@lru_cache(maxsize=1024)
def _country(code: str) -> _Country | None:
    region = phonenumbers.region_code_for_country_code(int(code))
    metadata = phonenumbers.PhoneMetadata.metadata_for_region_or_calling_code(int(code), region)
    if metadata is None or metadata.general_desc is None:
        return None
    prefix = "|".join(filter(None, ("0", metadata.national_prefix, metadata.national_prefix_for_parsing)))
    return _Country(frozenset(metadata.general_desc.possible_length), re.compile(prefix))


@lru_cache(maxsize=_REMEMBERED)
def _parsed(text: str, region: str | None = None) -> str:
    normal = _formatted(text, region)
    # Of a row of zeros the library drops another one each time: such a number has no form of its own.
    if _formatted(normal) != normal:
        raise InvalidRecipientError("not a phone number")
    return normal


def _formatted(text: str, region: str | None = None) -> str:
    if region is None and not text.startswith("+"):
        raise InvalidRecipientError("a phone number starts with + and its country code")
    try:
        number = phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException as error:
        raise InvalidRecipientError("not a phone number") from error
    if number.extension or not phonenumbers.is_possible_number(number):
        raise InvalidRecipientError("not a possible phone number of its country")
    return str(phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164))


def email_address(text: str) -> str:
    """Return the normalised address; raise InvalidRecipientError.

    The library takes 100 µs an address. The usual kind, a local part of plain characters, needs it for the domain
    alone, and domains repeat.
    """
    local, at, domain = text.rpartition("@")
    if at and len(local) <= _LOCAL_LIMIT and len(text) <= _ADDRESS_LIMIT and _PLAIN_LOCAL.fullmatch(local):
        return f"{local}@{_email('a@' + domain)[2:]}"
    return _email(text)


@lru_cache(maxsize=_REMEMBERED)
def _email(text: str) -> str:
    try:
        return str(validate_email(text, check_deliverability=False).normalized)
    except EmailNotValidError as error:
        raise InvalidRecipientError("not an e-mail address") from error


def push_token(text: str) -> str:
    """Return the token as it is: 1 to 4096 visible ASCII characters; raise InvalidRecipientError."""
    if not _PUSH_TOKEN.fullmatch(text):
        raise InvalidRecipientError("a push token is 1 to 4096 visible ASCII characters")
    return text


NORMALISERS: Mapping[Channel, Callable[[str], str]] = {
    Channel.SMS: phone_number,
    Channel.EMAIL: email_address,
    Channel.PUSH: push_token,
}
"""The channels that need an address. An in-app message is stored under the user's id."""

INDEX_KINDS: Mapping[str, str] = {Channel.EMAIL: "email", Channel.SMS: "phone", Channel.PUSH: "device"}
"""What the blind index of an address is of, by channel: the same for users' own, explicit and suppressed ones."""
