"""Devices: registered and seen again, in one place of a tenant, muted, replaced when there are too many."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy.engine import Row

from app.sealing import context
from app.wiring import vault
from tests.integration.api.conftest import Api, error_of
from tests.integration.api.test_api_users import USERS, call, put

Rows = Callable[..., list[Row[Any]]]

TOKEN = "sandbox:ok-0123456789abcdef"


def register(api: Api, user: str, token: str = TOKEN, *, status: int = 201, **chosen: Any) -> dict[str, Any]:
    response = call(api, "POST", f"{USERS}/{user}/devices", {"platform": "IOS", "token": token} | chosen)
    assert response.status_code == status, response.text
    device: dict[str, Any] = response.get_json()
    return device


def devices(api: Api, user: str, **named: Any) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = call(api, "GET", f"{USERS}/{user}/devices", **named).get_json()["data"]
    return listed


def test_a_device_is_registered_muted_seen_again_and_forgotten(api: Api, rows: Rows) -> None:
    """Seen again it keeps its id and what was chosen, and is registered anew. Case I07.

    What is stored opens under the device's id. Fails when the second registration leaves a seal of another id.
    """
    put(api, "ana", {})
    first = register(api, "ana", time_zone="Asia/Tokyo")
    path = f"{USERS}/ana/devices/{first['id']}"
    assert (first["token"], first["is_muted"], first["platform"]) == (TOKEN, False, "IOS")
    assert call(api, "PATCH", path, {"is_muted": True}).get_json()["time_zone"] == "Asia/Tokyo"
    again = register(api, "ana", platform="ANDROID", status=200)
    assert (again["id"], again["is_muted"], again["time_zone"], again["platform"]) == (
        first["id"], True, "Asia/Tokyo", "ANDROID",
    )  # fmt: skip
    assert again["registered_at"] > first["registered_at"]
    ((stored, text),) = rows("SELECT token, device::text FROM device")
    assert vault(api.settings).open(context("device", "demo", first["id"]), bytes(stored)) == TOKEN.encode()
    assert TOKEN not in text
    assert call(api, "PATCH", path, {"time_zone": None, "is_muted": False}).get_json()["time_zone"] is None
    assert call(api, "DELETE", path).status_code == 204
    for method, body in (("DELETE", None), ("PATCH", {})):
        gone = call(api, method, path, body)
        assert (gone.status_code, error_of(gone)["code"]) == (404, "DOMAIN_DEVICE_NOT_FOUND")
    assert devices(api, "ana") == []


def test_a_phone_that_changes_hands_is_the_new_users_alone(api: Api, rows: Rows) -> None:
    """Under a new id and unmuted, so that nothing meant for the first user reaches it; another tenant's stays.

    Fails when the device keeps its id.
    """
    for user in ("ana", "bea"):
        put(api, user, {})
    put(api, "ana", {}, tenant="other")
    call(api, "POST", f"{USERS}/ana/devices", {"platform": "IOS", "token": TOKEN}, tenant="other")
    first = register(api, "ana", is_muted=True, time_zone="Asia/Tokyo")
    moved = register(api, "bea")
    assert moved["id"] != first["id"]
    assert (moved["is_muted"], moved["time_zone"], moved["token"]) == (False, None, TOKEN)
    assert devices(api, "ana") == []
    assert [device["token"] for device in devices(api, "bea")] == [TOKEN]
    assert len(rows("SELECT * FROM device")) == 2


def test_the_device_unseen_for_longest_makes_room(make_api: Callable[..., Api], rows: Rows) -> None:
    """A user keeps the newest ones; somebody else's stay. Fails when the count is of the tenant."""
    api = make_api(devices_per_user=3)
    for user in ("ana", "bea"):
        put(api, user, {})
    register(api, "bea", "token-of-bea")
    for n in range(3):
        register(api, "ana", f"token-{n}")
    rows("UPDATE device SET last_seen_at = now() - interval '1 day' WHERE user_id = 'ana'")
    register(api, "ana", "token-0", status=200)
    register(api, "ana", "token-3")
    assert len(devices(api, "ana")) == 3
    assert {"token-0", "token-3"} < {device["token"] for device in devices(api, "ana")}
    assert len(devices(api, "bea")) == 1


def test_a_token_that_is_registered_many_times_at_once_is_one_device(api: Api) -> None:
    """Whoever comes last has it; no request fails."""
    for user in ("ana", "bea"):
        put(api, user, {})

    def one(n: int) -> int:
        body = {"platform": "WEB", "token": TOKEN}
        return call(api, "POST", f"{USERS}/{('ana', 'bea')[n % 2]}/devices", body).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(one, range(24))) <= {200, 201}
    assert len(devices(api, "ana")) + len(devices(api, "bea")) == 1


def test_a_person_manages_their_own_devices_and_sees_their_tokens(api: Api) -> None:
    """Others' are not there; a service without `recipients:read` sees masks."""
    for user in ("ana", "bea"):
        put(api, user, {})
    own = {"user": "ana", "scope": "users:read users:write"}
    mine = call(api, "POST", f"{USERS}/ana/devices", {"platform": "IOS", "token": TOKEN}, **own)
    assert (mine.status_code, mine.get_json()["token"]) == (201, TOKEN)
    (masked,) = devices(api, "ana", scope="users:read")
    assert masked["token"] == "sand***cdef"
    theirs = register(api, "bea", "token-of-bea")
    for method, path, body in (
        ("POST", f"{USERS}/bea/devices", {"platform": "IOS", "token": "x"}),
        ("GET", f"{USERS}/bea/devices", None),
        ("PATCH", f"{USERS}/bea/devices/{theirs['id']}", {"is_muted": True}),
        ("DELETE", f"{USERS}/bea/devices/{theirs['id']}", None),
        ("PATCH", f"{USERS}/ana/devices/{theirs['id']}", {"is_muted": True}),
    ):
        assert call(api, method, path, body, **own).status_code == 404, (method, path)
    assert devices(api, "bea")[0]["is_muted"] is False


def test_what_is_no_device_is_refused(api: Api) -> None:
    """By the name of the field; of a user who is not there, as not there."""
    put(api, "ana", {})
    good = {"platform": "IOS", "token": TOKEN}
    for change, field in (
        ({"platform": "ios"}, "platform"), ({"token": ""}, "token"), ({"token": "a b"}, "token"),
        ({"token": "é"}, "token"), ({"token": "x\n"}, "token"), ({"token": "x" * 4097}, "token"),
        ({"is_muted": "yes"}, "is_muted"), ({"is_muted": 1}, "is_muted"), ({"mute": True}, "mute"),
    ):  # fmt: skip
        refused = call(api, "POST", f"{USERS}/ana/devices", good | change)
        assert (refused.status_code, error_of(refused)["details"][0]["field"]) == (400, field)
    for method, path, body in (
        ("POST", f"{USERS}/nobody/devices", good),
        ("GET", f"{USERS}/nobody/devices", None),
        ("PATCH", f"{USERS}/ana/devices/7", {}),
        ("DELETE", f"{USERS}/ana/devices/%00", None),
    ):
        assert call(api, method, path, body).status_code == 404, (method, path)
    device = register(api, "ana")
    assert call(api, "PATCH", f"{USERS}/ana/devices/{device['id']}", {"is_muted": None}).status_code == 400
