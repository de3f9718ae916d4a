"""Turns: requests whose outcome depends on one another's rows take one after the other.

A turn is an advisory lock that ends with its transaction. It is taken by a statement of its own, before the one
that looks: at READ COMMITTED each statement sees what was committed when it began, so what the last holder of the
turn wrote is seen. A request takes all its turns of a kind at once, in order of their numbers, those of the kind
"frequency" before those of "supersede", and before it locks any row; nobody who holds a row's lock waits for a
turn, but the expander that holds its batch's row, for which no holder of a turn waits. So no circle of waiting can
close.
"""

import hashlib
from collections.abc import Iterable

TAKE_TURNS = "SELECT pg_advisory_xact_lock(number) FROM unnest(%(turns)s::bigint[]) AS number; "


def turn(kind: str, *parts: str) -> int:
    """Return the number of a turn. Two that share one by accident, once in 2^64, only wait for each other."""
    digest = hashlib.blake2b(digest_size=8, person=kind.encode())
    for part in parts:
        encoded = part.encode()
        digest.update(b"%d:%b" % (len(encoded), encoded))
    return int.from_bytes(digest.digest(), "big", signed=True)


def in_order(turns: Iterable[int]) -> str:
    """Return turns as a PostgreSQL array, in the order in which everybody takes them."""
    return "{" + ",".join(map(str, sorted(set(turns)))) + "}"
