"""Names of time zones as callers write them: known ones pass, any other is refused with the field that has it."""

from app.domain import zones
from app.services.refusal import Problem, Refused


def check_zone(field: str, name: str) -> None:
    """Raise Refused, naming the field, for what is no IANA zone; no file is opened for it."""
    try:
        zones.zone(name)
    except zones.UnknownZoneError as error:
        raise Refused(
            "DOMAIN_TIME_ZONE_UNKNOWN", "The time zone is none.", [Problem(field, f"is {error}")]
        ) from error
