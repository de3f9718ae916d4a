"""What is to become of a user's record: which fields, and whether the others stay or go.

The same change is one request's, or one row's of a bulk. Addresses are here in their stored form, not yet sealed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.domain.locales import region_of
from app.services.recipients import InvalidRecipientError, email_address, phone_number
from app.services.refusal import Problem, Refused

ERASED_PREFIX = "erased:"
"""Begins the pseudonyms that take the place of ids of erased users, so no user's id may begin with it."""

FIELDS = ("status", "email", "phone", "locale", "time_zone", "attributes", "last_seen_at")
OWN_FIELDS = frozenset({"locale", "time_zone"})
"""What a person may change of their own record. An address is where codes are sent: who has a person's session for
a minute must not be able to take over what the address protects, so addresses are changed by the tenant's
services, which can check them first."""


@dataclass(frozen=True, slots=True)
class UserChange:
    """A change of the record of user `id`. `fields` holds what was given, by column; None clears.

    With `replaces`, what was not given is cleared as well; without, it stays, and attributes are merged by their
    names.
    """

    id: str
    fields: Mapping[str, Any]
    replaces: bool = False


def normalised(given: Mapping[str, Any], region: str | None) -> dict[str, Any]:
    """Return the given fields with the addresses in their stored form; raise Refused naming those that are none.

    A phone number in national spelling is read as one of `region`, else of the country of the given locale.
    """
    fields = dict(given)
    problems = []
    if fields.get("email") is not None:
        try:
            fields["email"] = email_address(fields["email"])
        except InvalidRecipientError as error:
            problems.append(Problem("email", str(error)))
    if fields.get("phone") is not None:
        try:
            fields["phone"] = phone_number(fields["phone"], region or region_of(fields.get("locale")))
        except InvalidRecipientError as error:
            problems.append(Problem("phone", str(error)))
    if problems:
        raise Refused("DOMAIN_RECIPIENT_INVALID", "An address is none.", problems)
    return fields
