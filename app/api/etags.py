"""Entity tags: a client need not be sent again what it has, and cannot overwrite what it has not seen.

A tag is a digest of the answer's bytes, so it is a strong one, and equal tags mean equal answers. A proxy that
compresses an answer on the way changes the tag: nginx marks it as weak (`W/"x"`), Apache and others append the
coding (`"x-gzip"`). A client sends back what it was given, so both changes are undone before tags are compared,
also for `If-Match`: what our own tag says is exact whatever a proxy did to it.
"""

import hashlib
import re
from http import HTTPStatus

from flask import Response, request

from app.api.errors import JSON, ApiError

UNCHANGED = {HTTPStatus.NOT_MODIFIED: ("Not changed since the answer with the tag of `If-None-Match`.", None)}
"""For the answers of an operation that sends a tag."""

_DIGEST_BYTES = 16
_TAG = re.compile(r'\s*(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"\s*')
_CODING = re.compile(r"[-;](?:gzip|br|deflate|zstd)$")
_KEPT = {"Cache-Control": "private, no-cache", "Vary": "Authorization"}


def tag_of(body: bytes) -> str:
    """Return the tag of an answer, quotes included."""
    return f'"{hashlib.blake2b(body, digest_size=_DIGEST_BYTES).hexdigest()}"'


def matches(header: str, tag: str) -> bool:
    """Tell whether a list of tags from a client, or `*`, names `tag`. What cannot be read names nothing."""
    if header.strip() == "*":
        return True
    found = set()
    at = 0
    while match := _TAG.match(header, at):
        found.add(_CODING.sub("", match[1]))
        at = match.end()
        if at == len(header):
            return tag.strip('"') in found
        if header[at] != ",":
            break
        at += 1
    return False


def answered(body: bytes) -> Response:
    """Return `body` with its tag, or 304 without it to a client that has it already."""
    tag = tag_of(body)
    headers = {"ETag": tag, **_KEPT}
    header = request.headers.get("If-None-Match")
    if header is not None and matches(header, tag):
        return Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(body, HTTPStatus.OK, headers, mimetype=JSON)


def check_write(tag: str | None, *, is_required: bool = False) -> None:
    """Refuse to write over something that the client has not seen.

    `tag` is that of the thing as it stands, None when there is none. Raises ApiError 412 when `If-Match` names
    another, or `If-None-Match: *` and there is one; 428 without `If-Match` when it `is_required`.
    """
    needed, unwanted = request.headers.get("If-Match"), request.headers.get("If-None-Match")
    if needed is None and unwanted is None and is_required and tag is not None:
        raise ApiError(
            HTTPStatus.PRECONDITION_REQUIRED,
            "VALIDATION_IF_MATCH_MISSING",
            "Send If-Match with the ETag of what you have read.",
        )
    is_other = needed is not None and (tag is None or not matches(needed, tag))
    is_there = unwanted is not None and tag is not None and matches(unwanted, tag)
    if is_other or is_there:
        raise ApiError(
            HTTPStatus.PRECONDITION_FAILED,
            "DOMAIN_CHANGED_MEANWHILE",
            "It is not as you know it; read it again.",
            headers={} if tag is None else {"ETag": tag},
        )
