"""Requests that are too large, on every route: refused with a 4xx before anything is done with them."""

from http import HTTPStatus

import pytest

from tests.integration.api.conftest import PATH, Api, error_of, sms

ROUTES = [("GET", f"{PATH}/x"), ("POST", PATH), ("GET", "/v1/audit"), ("POST", "/v1/api-keys"), ("GET", "/live")]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_long_queries_and_headers_are_refused_everywhere(api: Api, method: str, path: str) -> None:
    """Case K01. Before sign-in, so that nobody needs a token to be told. Fails when a route is left out."""
    client = api.app.test_client()
    long = client.open(path, method=method, query_string="q=" + "x" * 8192)
    assert long.status_code == HTTPStatus.REQUEST_URI_TOO_LONG
    assert error_of(long)["code"] == "VALIDATION_TARGET_TOO_LONG"
    heavy = client.open(path, method=method, headers={"X-Filler": "x" * 33_000})
    assert heavy.status_code == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    assert error_of(heavy)["code"] == "VALIDATION_HEADERS_TOO_LARGE"
    big = client.open(path, method=method, data=b" " * 262_145)
    assert big.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE


@pytest.mark.parametrize(("levels", "status"), [(10, 202), (40, 400), (900, 400), (100_000, 400)])
def test_deep_bodies_are_refused_by_their_depth(api: Api, levels: int, status: int) -> None:
    """Whatever the schema says of the place; many flat brackets are not depth."""
    body = sms(payload={"a": 0, "flat": [[]] * 100})
    deep = api.post(body).status_code
    assert deep == 202
    text = api.app.json.dumps(body).replace('"a": 0', '"a": ' + "[" * levels + "]" * levels)
    assert api.post(text.encode()).status_code == status
