"""The API in this process, on a database of the test's own; Redis and Kafka are absent unless a test asks."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy.engine import Engine, Row
from werkzeug.test import TestResponse

from app.domain.callers import Role
from app.domain.error_codes import CATALOGUE
from app.factory import create_app
from app.services.tokens import mint
from app.settings import Settings
from embedded.ports import free_port

_keys = itertools.count(1)
PATH = "/v1/notifications"


def sms(number: int = 0, **chosen: Any) -> dict[str, Any]:
    """A request for one SMS that the API accepts."""
    return {
        "user_id": "u1",
        "category": "security",
        "priority": "NORMAL",
        "channels": ["SMS"],
        "content": {"title": "Hello", "body": "hello"},
        "recipients": {"SMS": f"+447700900{number:03d}"},
    } | chosen


@dataclass
class Api:
    """Calls the API as tenant `demo` unless told otherwise."""

    app: Flask
    settings: Settings
    client: FlaskClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = self.app.test_client()

    def bearer(
        self,
        tenant: str = "demo",
        scope: str = "notifications:read notifications:write",
        role: Role = Role.SERVICE,
        subject: str = "tests",
    ) -> dict[str, str]:
        return {"Authorization": f"Bearer {mint(self.settings, tenant, subject, scope.split(), role=role)}"}

    def post(self, body: Any, key: str | None = None, tenant: str = "demo", **headers: str) -> TestResponse:
        """POST a notification; `body` may be bytes, sent as they are."""
        raw = body if isinstance(body, bytes) else orjson.dumps(body)
        sent = self.bearer(tenant) | {"Idempotency-Key": key or f"key-{next(_keys)}"} | headers
        sent.setdefault("Content-Type", "application/json")
        return self.app.test_client().post(PATH, data=raw, headers=sent)

    def get(self, path: str, tenant: str = "demo", **named: Any) -> TestResponse:
        return self.client.get(path, headers=self.bearer(tenant), **named)

    def read(self, identifier: str, tenant: str = "demo") -> TestResponse:
        return self.get(f"{PATH}/{identifier}", tenant)

    def cancel(self, identifier: str, tenant: str = "demo") -> TestResponse:
        return self.client.post(f"{PATH}/{identifier}/cancel", headers=self.bearer(tenant))


@pytest.fixture
def nowhere() -> str:
    """A Redis address at which nothing listens."""
    return f"redis://127.0.0.1:{free_port()}/0"


@pytest.fixture
def make_api(make_settings: Callable[..., Settings], nowhere: str) -> Callable[..., Api]:
    """A factory of applications with settings of their own."""

    def make(**chosen: Any) -> Api:
        chosen = {"redis_url": nowhere, "kafka_bootstrap_servers": "127.0.0.1:1", "log_level": "WARNING"} | chosen
        settings = make_settings(**chosen)
        return Api(create_app(settings), settings)

    return make


@pytest.fixture
def api(make_api: Callable[..., Api]) -> Api:
    """The application with default settings."""
    return make_api()


@pytest.fixture
def rows(engine: Engine) -> Callable[..., list[Row[Any]]]:
    """Runs a statement as the owner of the tables, past row-level security, and returns its rows."""

    def run(statement: str, **values: Any) -> list[Row[Any]]:
        with engine.begin() as connection:
            result = connection.exec_driver_sql(statement, values)
            return list(result) if result.returns_rows else []

    return run


def error_of(response: TestResponse) -> dict[str, Any]:
    """The error of an answer, after a look at its shape."""
    body = response.get_json()
    assert set(body) == {"error"}, body
    error: dict[str, Any] = body["error"]
    assert set(error) == {"code", "message", "details", "timestamp", "trace_id"}
    assert error["code"].split("_")[0] in {"VALIDATION", "DOMAIN", "INFRA", "AUTH"}
    assert CATALOGUE[error["code"]].status == response.status_code, error
    assert error["timestamp"].endswith("Z")
    assert len(error["trace_id"]) == 32
    return error
