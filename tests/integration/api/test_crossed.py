"""Nothing of another tenant, and for a person nothing of another person: over every route, and in every table.

Whatever is stored here carries a marker of its owner, `zt-TENANT` or `zu-TENANT-USER`; both tenants have users of
the same ids, so that only the tenant tells them apart.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from sqlalchemy.engine import Engine, Row
from werkzeug.test import TestResponse

from app.api.auth import kinds_of_routes
from app.domain.callers import Role
from app.services.tokens import ALL_SCOPES
from tests.integration.api.conftest import PATH, Api, error_of, sms
from tests.integration.rows import put

Rows = Callable[..., list[Row[Any]]]
TENANTS = ("demo", "other")
USERS = ("ana", "bea")
CALLERS = [
    *itertools.product(TENANTS, [Role.SERVICE, Role.ADMIN], ["program"]),
    *itertools.product(TENANTS, [Role.USER], USERS),
]
MARKER = re.compile(r"z[tu]-(demo|other)(?:-([a-z]+))?")
EXCUSED = {(400, "VALIDATION_CURSOR"), (422, "DOMAIN_TEMPLATE_NOT_FOUND")}
"""What is refused otherwise than with 403 and 404: a cursor of somebody else, and a text that is not there."""
ELSEWHERE = "/v1/notifications/batch"
"""Not open to persons; test_api_batches keeps tenants apart."""
UNCOUNTED = {"idempotency_key", "flow_mark", "alembic_version"}

Caller = tuple[str, Role, str]
Request = tuple[str, str, Any]


def marker(tenant: str, user: str) -> str:
    return f"zu-{tenant}-{user}"


@dataclass
class World:
    """Two tenants with two users each who have something of everything; `called` are the routes so far."""

    api: Api
    ids: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    tenants: dict[str, dict[str, str]] = field(default_factory=dict)
    called: set[tuple[str, str]] = field(default_factory=set)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def ask(self, caller: Caller, method: str, path: str, body: Any = None) -> TestResponse:
        tenant, role, subject = caller
        headers = self.api.bearer(tenant, " ".join(ALL_SCOPES), role, subject)
        if (method, path) == ("POST", PATH):
            headers["Idempotency-Key"] = f"crossed-{next(self.numbers)}"
        rule, _ = self.api.app.url_map.bind("").match(path.partition("?")[0], method, return_rule=True)
        self.called.add((rule.rule, method))
        return self.api.client.open(path, method=method, json=body, headers=headers)

    def make(self, caller: Caller, method: str, path: str, body: Any = None) -> Any:
        answer = self.ask(caller, method, path, body)
        assert answer.status_code in {200, 201, 202}, (method, path, answer.text)
        return answer.get_json()

    def fill(self) -> None:
        for tenant in TENANTS:
            service: Caller = (tenant, Role.SERVICE, f"zt-{tenant}")
            self._fill_tenant(service, f"zt-{tenant}")
            for user in USERS:
                self._fill_user(service, user, marker(tenant, user))

    def _fill_tenant(self, service: Caller, mark: str) -> None:
        content = {
            "category": mark,
            "default_locale": "en",
            "variables": [],
            "bodies": {"en": {"SMS": {"text": mark}}},
        }
        self.make(service, "PUT", f"/v1/templates/{mark}", content)
        self.make(service, "PUT", f"/v1/categories/{mark}", {"channels": {"PUSH": False}})
        self.make(service, "PUT", "/v1/tenant/defaults", {"channels": {"PUSH": True}})
        cap = {"limit": 1000, "window_seconds": 60, "channels": ["SMS"]}
        self.make(service, "PUT", f"/v1/frequency-caps/{mark}", cap)
        key = self.make(service, "POST", "/v1/api-keys", {"name": mark, "scopes": ["users:read"]})
        gone = marker(service[0], "gone")
        self.make(service, "POST", "/v1/users/bulk", {"users": [{"id": gone, "attributes": {"note": gone}}]})
        erasure = self.make(service, "DELETE", f"/v1/users/{gone}")
        self.tenants[service[0]] = {"name": mark, "key": key["id"], "erasure": erasure["id"]}

    def _fill_user(self, service: Caller, user: str, mark: str) -> None:
        address = f"{mark}@example.com"
        self.make(service, "PUT", f"/v1/users/{user}", {"email": address, "attributes": {"note": mark}})
        token = {"platform": "IOS", "token": f"sandbox:{mark}"}
        device = self.make(service, "POST", f"/v1/users/{user}/devices", token)
        self.make(service, "PUT", f"/v1/users/{user}/preferences", {"choices": {mark: {"PUSH": False}}})
        # Another address than the user's own, which nothing could be sent to any more.
        listed = {"channel": "EMAIL", "address": f"x-{address}", "reason": "MANUAL", "note": mark}
        suppression = self.make(service, "POST", "/v1/suppressions", listed)
        body = sms(
            user_id=user,
            category=mark,
            channels=["IN_APP", "EMAIL"],
            content={"title": mark, "body": mark},
            recipients={"EMAIL": address},
            metadata={"note": mark},
        )
        made = [self.make(service, "POST", PATH, body)["id"] for _ in range(2)]
        self.ids[service[0], user] = {
            "notification": made[0],
            "cancelled": made[1],
            "device": device["id"],
            "suppression": suppression["id"],
            "address": address,
        }


@pytest.fixture
def world(api: Api) -> World:
    """Both tenants, filled."""
    made = World(api)
    made.fill()
    return made


def reads(world: World, tenant: str, user: str) -> list[Request]:
    """Everything that can be read, aimed at what `user` of `tenant` has."""
    has, whole = world.ids[tenant, user], world.tenants[tenant]
    name = whole["name"]
    explained = sms(user_id=user, recipients={"SMS": "+447700900001"})
    templated = {key: value for key, value in explained.items() if key != "content"} | {"template": name}
    paths = [
        PATH,
        f"{PATH}?limit=1",
        f"{PATH}?user_id={user}&limit=1",
        f"{PATH}?category={marker(tenant, user)}",
        f"{PATH}/{has['notification']}",
        f"{PATH}/stats",
        f"{PATH}/stats?user_id={user}",
        f"{PATH}/unread-count?user_id={user}",
        f"/v1/inbox?user_id={user}&limit=1",
        f"/v1/users/{user}/inbox",
        "/v1/users",
        "/v1/users?limit=1",
        f"/v1/users?email={has['address']}",
        f"/v1/users/{user}",
        f"/v1/users/{user}/devices",
        f"/v1/users/{user}/preferences",
        "/v1/categories",
        f"/v1/categories/{name}",
        "/v1/tenant/defaults",
        "/v1/frequency-caps",
        "/v1/suppressions?limit=1",
        f"/v1/suppressions?channel=EMAIL&address=x-{has['address']}",
        "/v1/templates",
        f"/v1/templates/{name}",
        f"/v1/templates/{name}/versions",
        f"/v1/templates/{name}/versions/1",
        "/v1/api-keys?limit=1",
        "/v1/audit?limit=1",
        "/v1/audit?limit=100",
        f"/v1/audit?resource_id={whole['key']}",
        f"/v1/erasures/{whole['erasure']}",
    ]
    return [
        *(("GET", path, None) for path in paths),
        ("POST", "/v1/explain", explained),
        ("POST", "/v1/explain", templated),
        ("POST", f"/v1/templates/{name}/preview", {}),
        ("POST", "/v1/inbox/tickets", {"user_id": user}),
    ]


def writes(world: World, tenant: str, user: str, *, names_user: bool) -> list[Request]:
    """Everything that can be changed by an id, aimed at what `user` of `tenant` has and at the tenant's.

    With `names_user` also what is changed by the id of the user.
    """
    has, whole = world.ids[tenant, user], world.tenants[tenant]
    name, device = whole["name"], f"/v1/users/{user}/devices/{has['device']}"
    marked = f"{PATH}/{has['notification']}"
    wanted: list[Request] = [
        *(("PUT", f"{marked}/{mark}", None) for mark in ("seen", "read", "archived")),
        *(("DELETE", f"{marked}/{mark}", None) for mark in ("read", "archived")),
        ("DELETE", marked, None),
        ("POST", f"{marked}/restore", None),
        ("POST", f"{PATH}/{has['cancelled']}/cancel", None),
        ("PATCH", device, {"is_muted": True}),
        ("DELETE", device, None),
        ("DELETE", f"/v1/suppressions/{has['suppression']}", None),
        ("POST", f"/v1/api-keys/{whole['key']}/rotate", {}),
        ("DELETE", f"/v1/api-keys/{whole['key']}", None),
        ("PATCH", f"/v1/templates/{name}", {"current_version": 1}),
        ("DELETE", f"/v1/templates/{name}", None),
        ("DELETE", f"/v1/frequency-caps/{name}", None),
    ]
    if not names_user:
        return wanted
    return [
        *wanted,
        ("PATCH", f"/v1/users/{user}", {"attributes": {"note": None}}),
        ("PUT", f"/v1/users/{user}", {}),
        ("DELETE", f"/v1/users/{user}", None),
        ("POST", f"/v1/users/{user}/devices", {"platform": "IOS", "token": "sandbox:taken-0123456789"}),
        ("PUT", f"/v1/users/{user}/preferences", {}),
        ("PATCH", f"/v1/users/{user}/preferences", {"choices": {"*": None}}),
        ("PUT", f"{PATH}/read-all", {"user_id": user}),
        ("DELETE", f"/v1/categories/{name}", None),
        ("POST", PATH, sms(user_id=user)),
    ]


def is_foreign(caller: Caller, tenant: str, user: str | None) -> bool:
    """Whether what `user` of `tenant` has, or the tenant itself, is not for the caller to see."""
    own, role, subject = caller
    return tenant != own or (role is Role.USER and user not in {None, subject})


def contents(rows: Rows) -> dict[str, list[str]]:
    """Every row of every table, but for what each request leaves behind."""
    tables = [row[0] for row in rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
    return {
        table: sorted(row[0] for row in rows(f"SELECT t::text FROM {table} t"))
        for table in tables
        if table not in UNCOUNTED
    }


def test_a_thousand_crossed_requests_meet_nothing_of_others(world: World, rows: Rows) -> None:
    """Reads are aimed at anything, also with cursors of others; writes at what is another's: none changes a row.

    Every route of the API takes part: one that is new and missing here fails. Fails without the policies, when a
    list or a mark forgets its user, and when a refusal repeats what it refuses to show.
    """
    before = contents(rows)
    chance = random.Random(7)
    cursors: list[tuple[str, str]] = []
    for number in range(1000):
        caller = chance.choice(CALLERS)
        tenant, user = chance.choice(TENANTS), chance.choice(USERS)
        if number % 3 == 0:
            owners = [o for o in itertools.product(TENANTS, USERS) if is_foreign(caller, *o)]
            tenant, user = chance.choice(owners)
            # A path with the id of a user means the one in the caller's tenant: of use against other persons only.
            names_user = caller[1] is Role.USER and user != caller[2]
            method, path, body = chance.choice(writes(world, tenant, user, names_user=names_user))
            expected = {403, 404}
        else:
            method, path, body = chance.choice(reads(world, tenant, user))
            same = [cursor for of, cursor in cursors if of == path.partition("?")[0]]
            if same and "limit=1" in path and chance.random() < 0.4:
                path += f"&cursor={chance.choice(same)}"
            by_id = is_foreign(caller, tenant, user) and re.search(r"/[0-9a-f-]{36}$", path)
            expected = {403, 404} if by_id else {200, 201, 403, 404}
        answer = world.ask(caller, method, path, body)
        said = (caller, method, path, answer.status_code, answer.text[:500])
        if answer.status_code not in expected:
            assert (answer.status_code, error_of(answer)["code"]) in EXCUSED, said
        if path.startswith("/v1/categories/") and tenant != caller[0] and answer.status_code == 200:
            # Any text is a category, so the name that was asked for comes back; what was said of it must not.
            said_of_it = answer.get_json()
            assert (said_of_it["declared"], said_of_it["channels"], said_of_it["quiet_hours"]) == (False, {}, {})
            continue
        for shown in MARKER.finditer(answer.text + str(answer.headers)):
            assert not is_foreign(caller, *shown.groups()), (shown.group(), *said)
        if answer.status_code == 200 and answer.get_json().get("next_cursor"):
            cursors.append((path.partition("?")[0], answer.get_json()["next_cursor"]))
    assert cursors
    after = contents(rows)
    assert {table for table in before if before[table] != after[table]} == set()
    routes = {route for route in kinds_of_routes(world.api.app) if route[1] != "HEAD"}
    assert {route for route in routes - world.called if not route[0].startswith(ELSEWHERE)} == set()


def test_each_sees_what_is_their_own(world: World) -> None:
    """The markers are really in the answers, for who may see them; else the test above would show nothing."""
    for tenant, user in itertools.product(TENANTS, USERS):
        seen: dict[Role, set[str]] = {}
        for role, subject in ((Role.SERVICE, "program"), (Role.USER, user)):
            asked = [world.ask((tenant, role, subject), *request) for request in reads(world, tenant, user)]
            seen[role] = {path.group() for answer in asked for path in MARKER.finditer(answer.text)}
        assert seen[Role.SERVICE] >= {f"zt-{tenant}", *(marker(tenant, each) for each in USERS)}
        assert seen[Role.USER] >= {marker(tenant, user)}


def _tables_of_tenants(rows: Rows) -> list[Row[Any]]:
    return rows(
        "SELECT c.relname AS name, c.relispartition AS is_part, c.relrowsecurity AS is_guarded,"
        " has_any_column_privilege('arauto_api', c.oid, 'SELECT, INSERT, UPDATE')"
        " OR has_table_privilege('arauto_api', c.oid, 'DELETE, TRUNCATE') AS is_open,"
        " has_table_privilege('arauto_api', c.oid, 'SELECT') AS is_readable"
        " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'"
        " WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace ORDER BY 1"
    )


def test_every_table_of_tenants_is_guarded_by_its_rows(world: World, engine: Engine, rows: Rows) -> None:
    """As `arauto_api` a plain count finds the rows of the tenant that is set, and none when none is set.

    A table that the role may not touch at all needs no policy: the ledger, and partitions, which would let it past
    the policy of their parent. Fails for a new table with a tenant_id and no policy.
    """
    for tenant in TENANTS:
        put(engine, "SENT", tenant=tenant, attempts=1)
    tables = _tables_of_tenants(rows)
    opened = [each for each in tables if each.is_open]
    assert {each.name for each in tables if not each.is_open and not each.is_part} == {"ledger"}
    assert [each.name for each in opened if each.is_part or not each.is_guarded] == []
    filled = 0
    for table in (each.name for each in opened if each.is_readable):
        counts = dict(map(tuple, rows(f"SELECT tenant_id, count(*) FROM {table} GROUP BY 1")))
        filled += set(counts) >= set(TENANTS)
        for tenant in (*TENANTS, "nobody", None):
            with engine.begin() as connection:
                connection.exec_driver_sql("SET LOCAL ROLE arauto_api")
                if tenant is not None:
                    connection.exec_driver_sql("SELECT set_config('arauto.tenant', %s, true)", (tenant,))
                seen = connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()
            assert seen == (counts.get(tenant, 0) if tenant else 0), (table, tenant)
    assert filled >= 15
