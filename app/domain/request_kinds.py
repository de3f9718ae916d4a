"""The kinds of requests that are limited apart from each other."""

from enum import StrEnum


class RequestKind(StrEnum):
    """What a person's request is counted as. Those of services are all of one kind."""

    READ = "read"
    WRITE = "write"
    READ_MARK = "read_mark"
    """Marks of what was read: an inbox makes many of them while a person scrolls."""
    DELETE = "delete"


BY_METHOD = {
    "GET": RequestKind.READ,
    "HEAD": RequestKind.READ,
    "POST": RequestKind.WRITE,
    "PUT": RequestKind.WRITE,
    "PATCH": RequestKind.WRITE,
    "DELETE": RequestKind.DELETE,
}
"""What a request is counted as unless its route says something else."""
