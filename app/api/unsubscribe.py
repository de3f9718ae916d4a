"""`/v1/unsubscribe/{token}`: the link in a mail (RFC 8058). Public: the token is the proof.

Only POST changes anything. Scanners of mail open every link that they find, so GET and HEAD show a page with a
button and leave everything as it is. Nothing redirects, asks for a cookie or is loaded from elsewhere.
"""

from http import HTTPStatus
from typing import Any

from flask import Response, request
from flask_smorest import Blueprint
from markupsafe import escape

from app.api.auth import public
from app.api.context import services
from app.api.errors import ApiError
from app.api.openapi import operation, route

blueprint = Blueprint("unsubscribe", __name__, url_prefix="/v1", description="Unsubscribe links")

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self';"
    " frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:4rem auto;padding:0 1rem}}
button{{font:inherit;padding:.6rem 1.4rem}}</style></head>
<body><h1>{title}</h1>{content}</body></html>
"""
_BUTTON = """<p>You will get no more e-mails of the kind &ldquo;{category}&rdquo;.</p>
<form method="post"><input type="hidden" name="List-Unsubscribe" value="One-Click">
<button type="submit">Unsubscribe</button></form>"""
_DONE = "<p>You will get no more e-mails of the kind &ldquo;{category}&rdquo;. You can close this page.</p>"

_TOKEN = {
    "in": "path",
    "name": "token",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"},
}
_GET = operation(
    "Show the unsubscribe page",
    {HTTPStatus.OK: ("A page with a button; nothing is changed.", None)},
    errors=(HTTPStatus.NOT_FOUND,),
)
_GET["parameters"] = [_TOKEN]
_POST = operation(
    "Unsubscribe with one click",
    {HTTPStatus.OK: ("A page that says that it is done.", None)},
    errors=(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE),
)
_POST["parameters"] = [_TOKEN]
_POST["requestBody"] = {
    "required": True,
    "content": {
        kind: {
            "schema": {
                "type": "object",
                "properties": {"List-Unsubscribe": {"type": "string", "const": "One-Click"}},
                "required": ["List-Unsubscribe"],
            }
        }
        for kind in ("application/x-www-form-urlencoded", "multipart/form-data")
    },
}


@route(blueprint, "GET", "/unsubscribe/<token>", _GET)
@public
def show_unsubscribe(token: str) -> Response:
    """What is behind a `?` is passed over: mail programs add to links."""
    subject = services().unsubscribe.look(token)
    return _page("Unsubscribe", _BUTTON, category=subject.category)


@route(blueprint, "POST", "/unsubscribe/<token>", _POST)
@public
def unsubscribe(token: str) -> Response:
    """Switches e-mails of the link's category off for its user, once and for all; again is harmless."""
    if request.form.get("List-Unsubscribe") != "One-Click":
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            "VALIDATION_UNSUBSCRIBE",
            "Send the form List-Unsubscribe=One-Click (RFC 8058).",
        )
    return _page("Unsubscribed", _DONE, category=services().unsubscribe(token).category)


def _page(title: str, content: str, **values: Any) -> Response:
    filled = content.format(**{name: escape(value) for name, value in values.items()})
    return Response(_PAGE.format(title=title, content=filled), headers=_HEADERS, mimetype="text/html")
