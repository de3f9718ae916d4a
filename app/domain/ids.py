"""UUIDv7 identifiers: minted once, at acceptance, and sorted by the millisecond of their minting.

The tables are partitioned by ranges of the id, one day each, so an id alone tells its partition. A notification
and its deliveries are minted in the same millisecond, which lets a look-up of the deliveries of one notification
name a range of ids and so read one partition.
"""

import secrets
import time
from datetime import UTC, date, datetime
from uuid import UUID

_VERSION_7 = 0x7 << 76
_VARIANT_RFC = 0b10 << 62
_VARIANT_DIGIT = {f"{digit:x}": f"{8 | digit & 3:x}" for digit in range(16)}
_MILLISECOND_SHIFT = 80
_DAY_MILLISECONDS = 86_400_000


def mint(count: int = 1, at_milliseconds: int | None = None) -> list[UUID]:
    """Return `count` new UUIDv7 that carry the same millisecond (RFC 9562, section 5.7)."""
    milliseconds = time.time_ns() // 1_000_000 if at_milliseconds is None else at_milliseconds
    head = (milliseconds & 0xFFFF_FFFF_FFFF) << _MILLISECOND_SHIFT | _VERSION_7 | _VARIANT_RFC
    noise = secrets.token_bytes(10 * count)
    return [UUID(int=head | _tail(noise[10 * i : 10 * i + 10])) for i in range(count)]


def mint_text(count: int, at_milliseconds: int) -> list[str]:
    """Return `count` new ids of one millisecond as text, ascending, for a hot path that needs no objects."""
    head = f"{at_milliseconds & 0xFFFF_FFFF_FFFF:012x}"
    front = f"{head[:8]}-{head[8:]}-7"
    digits = secrets.token_bytes(10 * count).hex()
    # 12 random bits behind the version, 2 bits of variant, 62 random bits.
    tails = (digits[start : start + 20] for start in range(0, 20 * count, 20))
    return sorted(f"{front}{t[:3]}-{_VARIANT_DIGIT[t[3]]}{t[4:7]}-{t[7:19]}" for t in tails)


def _tail(noise: bytes) -> int:
    number = int.from_bytes(noise, "big")
    return (number >> 68) << 64 | number & 0x3FFF_FFFF_FFFF_FFFF


def minted_at(identifier: UUID) -> datetime:
    """Return the instant inside a UUIDv7 of ours, in UTC; raise ValueError past the year 9999."""
    return datetime.fromtimestamp((identifier.int >> _MILLISECOND_SHIFT) / 1000, UTC)


def siblings(identifier: UUID) -> tuple[UUID, UUID]:
    """Return the least and the greatest id of the millisecond in which `identifier` was minted."""
    head = identifier.int >> _MILLISECOND_SHIFT << _MILLISECOND_SHIFT
    return UUID(int=head), UUID(int=head | (1 << _MILLISECOND_SHIFT) - 1)


def day_floor(day: date) -> UUID:
    """Return the least id that can be minted on `day` (UTC): the lower bound of that day's partition."""
    midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return UUID(int=int(midnight.timestamp() * 1000) << _MILLISECOND_SHIFT)


def day_range(identifiers: list[UUID]) -> tuple[UUID, UUID]:
    """Return the bounds [low, high) of the days in which `identifiers` were minted, for partition pruning.

    Any UUID will do: an id that somebody made up may lie in a year that no `datetime` can tell, and must not
    fail the batch that it came with.
    """
    first, last = (one.int >> _MILLISECOND_SHIFT for one in (min(identifiers), max(identifiers)))
    low = first // _DAY_MILLISECONDS * _DAY_MILLISECONDS
    high = min((last // _DAY_MILLISECONDS + 1) * _DAY_MILLISECONDS, 0xFFFF_FFFF_FFFF)
    return UUID(int=low << _MILLISECOND_SHIFT), UUID(int=high << _MILLISECOND_SHIFT)


def first_id_at(instant: datetime) -> UUID:
    """Return the least id that can be minted at or after `instant` (aware), to the millisecond."""
    return UUID(int=int(instant.timestamp() * 1000) << _MILLISECOND_SHIFT)
