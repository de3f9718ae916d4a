"""Roles: a person sees and changes only what is theirs, a service its tenant's, and an administrator may all."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.engine import Row
from werkzeug.test import TestResponse

from app.domain.callers import Role
from tests.integration.api.conftest import PATH, Api, error_of, sms

Rows = Callable[..., list[Row[Any]]]


def as_user(api: Api, subject: str, tenant: str = "demo") -> dict[str, str]:
    return api.bearer(tenant, role=Role.USER, subject=subject)


def post(api: Api, user_id: Any, headers: dict[str, str], key: str) -> TestResponse:
    return api.client.post(PATH, json=sms(user_id=user_id), headers=headers | {"Idempotency-Key": key})


def test_a_person_reads_and_cancels_only_what_is_theirs(api: Api, rows: Rows) -> None:
    """Another person's notification gets the very answer of one that does not exist, and stays as it is.

    Fails when the look-up or the cancelling does not ask for the user.
    """
    theirs = api.post(sms(user_id="ana")).get_json()["id"]
    nothing = "01a22d60-47d0-79a7-9147-1bc22276754c"
    for other in (as_user(api, "bea"), as_user(api, "ANA"), as_user(api, "ana", tenant="other")):
        for method, path in (("GET", f"{PATH}/{{}}"), ("POST", f"{PATH}/{{}}/cancel")):
            found, absent = (
                api.client.open(path.format(each), method=method, headers=other) for each in (theirs, nothing)
            )
            assert found.status_code == absent.status_code == 404
            assert (error_of(found)["code"], error_of(found)["message"]) == (
                error_of(absent)["code"], error_of(absent)["message"],
            )  # fmt: skip
    assert [(row.status, row.cancel_requested_at) for row in rows("SELECT * FROM delivery")] == [("PENDING", None)]
    own = as_user(api, "ana")
    assert api.client.get(f"{PATH}/{theirs}", headers=own).get_json()["user_id"] == "ana"
    cancelled = api.client.post(f"{PATH}/{theirs}/cancel", headers=own)
    assert cancelled.status_code == 200
    assert cancelled.get_json()["status"] == "CANCELLED"


def test_a_person_notifies_only_themself(api: Api, rows: Rows) -> None:
    """403 with a code of its own for anybody else; a number counts as its text, as everywhere."""
    refused = post(api, "bea", as_user(api, "ana"), "k1")
    assert refused.status_code == 403
    assert error_of(refused)["code"] == "AUTH_USER_MISMATCH"
    assert rows("SELECT FROM notification") == rows("SELECT FROM idempotency_key") == []
    assert post(api, "ana", as_user(api, "ana"), "k1").status_code == 202
    assert post(api, 42, as_user(api, "42"), "k2").status_code == 202
    assert post(api, 43, as_user(api, "42"), "k3").status_code == 403


def test_an_idempotency_key_belongs_to_the_person(api: Api, rows: Rows) -> None:
    """Case D07, for people. Nobody can take another one's key, or a service's, or get the answer stored under it.

    Fails when the keys of all callers of a tenant share one scope.
    """
    first = post(api, "ana", as_user(api, "ana"), "order-1")
    assert post(api, "bea", as_user(api, "bea"), "order-1").status_code == 202
    assert post(api, "ana", api.bearer(), "order-1").status_code == 202
    assert post(api, "ana", as_user(api, "ana"), "order-1").get_json() == first.get_json()
    assert len(rows("SELECT FROM notification")) == 3


def test_a_person_needs_the_scope_as_well(api: Api) -> None:
    """The role narrows what scopes allow and widens nothing."""
    reader = api.bearer(scope="notifications:read", role=Role.USER, subject="ana")
    refused = post(api, "ana", reader, "k")
    assert (refused.status_code, error_of(refused)["code"]) == (403, "AUTH_SCOPE_MISSING")


@pytest.mark.parametrize("scope", ["", "receipts:write", "anything"])
def test_an_administrator_has_every_scope(api: Api, scope: str) -> None:
    """And sees all of the tenant, but no other one's."""
    admin = api.bearer(scope=scope, role=Role.ADMIN)
    made = post(api, "ana", admin, "k").get_json()["id"]
    assert api.client.get(f"{PATH}/{made}", headers=admin).status_code == 200
    assert api.client.get("/v1/api-keys", headers=admin).status_code == 200
    stranger = api.bearer("other", role=Role.ADMIN)
    assert api.client.get(f"{PATH}/{made}", headers=stranger).status_code == 404


def test_what_is_not_made_for_people_refuses_them(api: Api) -> None:
    """A person who could make keys could make one that is held to nobody.

    Fails when a view has to remember to refuse them.
    """
    person = api.bearer(scope="keys:manage notifications:write", role=Role.USER, subject="ana")
    for method, path in (("GET", "/v1/api-keys"), ("POST", "/v1/api-keys")):
        body = {"name": "mine", "scopes": ["notifications:write"]} if method == "POST" else None
        refused = api.client.open(path, method=method, json=body, headers=person)
        assert (refused.status_code, error_of(refused)["code"]) == (403, "AUTH_ROLE_NOT_ALLOWED")
