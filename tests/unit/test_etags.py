"""Entity tags: conditional reads and writes, also through proxies that change tags on the way."""

import pytest
from flask import Flask, Response
from flask.testing import FlaskClient

from app.api import errors, etags

THING = {"text": "one"}


@pytest.fixture
def client() -> FlaskClient:
    """An application with one thing that is read and written."""
    app = Flask("etags")
    errors.register(app)
    THING["text"] = "one"

    @app.get("/thing")
    def read() -> Response:
        return etags.answered(THING["text"].encode())

    @app.put("/thing/<text>")
    def write(text: str) -> Response:
        etags.check_write(etags.tag_of(THING["text"].encode()), is_required=True)
        THING["text"] = text
        return Response(status=204)

    @app.put("/new")
    def make() -> Response:
        etags.check_write(None)
        return Response(status=201)

    return app.test_client()


def through(proxy: str, tag: str) -> str:
    return {
        "none": tag,
        "nginx": f"W/{tag}",
        "apache": f'{tag[:-1]}-gzip"',
        "brotli": f'W/{tag[:-1]}-br"',
        "caddy": f'{tag[:-1]}-zstd"',
        "semicolon": f'{tag[:-1]};gzip"',
    }[proxy]


PROXIES = ["none", "nginx", "apache", "brotli", "caddy", "semicolon"]


@pytest.mark.parametrize("proxy", PROXIES)
def test_a_conditional_write_works_through_a_compressing_proxy(client: FlaskClient, proxy: str) -> None:
    """Case K11. What was read may be written over once; an older tag is refused with the present one.

    Fails with a strong comparison that takes tags as they come.
    """
    tag = client.get("/thing").headers["ETag"]
    sent = through(proxy, tag)
    assert client.put("/thing/two", headers={"If-Match": sent}).status_code == 204
    stale = client.put("/thing/three", headers={"If-Match": sent})
    assert (stale.status_code, stale.get_json()["error"]["code"]) == (412, "DOMAIN_CHANGED_MEANWHILE")
    assert stale.headers["ETag"] == client.get("/thing").headers["ETag"]
    assert THING["text"] == "two"


@pytest.mark.parametrize("proxy", PROXIES)
def test_what_is_known_is_not_sent_again(client: FlaskClient, proxy: str) -> None:
    """Case K11. 304 without a body, by a weak match too, and the whole again once it changed."""
    first = client.get("/thing")
    known = {"If-None-Match": through(proxy, first.headers["ETag"])}
    answer = client.get("/thing", headers=known)
    assert (answer.status_code, answer.data) == (304, b"")
    assert answer.headers["ETag"] == first.headers["ETag"]
    assert answer.headers["Cache-Control"] == "private, no-cache"
    THING["text"] = "two"
    assert client.get("/thing", headers=known).data == b"two"


def test_a_write_without_a_condition_is_refused_where_one_is_needed(client: FlaskClient) -> None:
    """Case K11. 428; any state will do for `*`, and one of a list."""
    refused = client.put("/thing/two")
    assert (refused.status_code, refused.get_json()["error"]["code"]) == (428, "VALIDATION_IF_MATCH_MISSING")
    assert client.put("/thing/two", headers={"If-Match": "*"}).status_code == 204
    tag = client.get("/thing").headers["ETag"]
    assert client.put("/thing/three", headers={"If-Match": f'"a", W/"b" , {tag}'}).status_code == 204


def test_conditions_on_what_does_not_exist(client: FlaskClient) -> None:
    """`If-None-Match: *` makes something only where nothing is; `If-Match` finds nothing to match."""
    assert client.put("/new", headers={"If-None-Match": "*"}).status_code == 201
    assert client.put("/new", headers={"If-Match": "*"}).status_code == 412
    assert client.put("/thing/two", headers={"If-None-Match": "*"}).status_code == 412


@pytest.mark.parametrize("header", ["", "abc", '"', "W/", '"a" "b"', '"a",', ',"a"', 'w/"a"', '"' + "a" * 10_000])
def test_what_is_no_tag_matches_nothing(client: FlaskClient, header: str) -> None:
    """A header that cannot be read never overwrites, and never hides a change."""
    assert not etags.matches(header, '"a"')
    assert client.put("/thing/two", headers={"If-Match": header}).status_code == 412
    assert client.get("/thing", headers={"If-None-Match": header}).status_code == 200
