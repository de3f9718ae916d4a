"""A client generator reads the OpenAPI document, and what it writes works: made anew, imported, and used."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import httpx
import orjson
import pytest

from app.api import docs
from app.domain.callers import Role
from tests.integration.api.conftest import Api

PACKAGE = "arauto_client"


@pytest.fixture
def generated(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package that the generator made of the document."""
    document, settings = tmp_path / "openapi.json", tmp_path / "config.yml"
    document.write_bytes(orjson.dumps(api.app.extensions[docs.DOCUMENT]))
    # Lists go up and come down as they are; to the generator they are bytes.
    overrides = "".join(f"  {kind}: application/octet-stream\n" for kind in ("application/x-ndjson", "text/csv"))
    settings.write_text(f"package_name_override: {PACKAGE}\npost_hooks: []\ncontent_type_overrides:\n{overrides}")
    generator = Path(sys.executable).with_name("openapi-python-client")
    command = [generator, "generate", "--path", document, "--config", settings, "--meta", "none"]
    command += ["--output-path", tmp_path / PACKAGE]
    made = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True, timeout=120)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "WARNING" not in (made.stdout + made.stderr).upper(), made.stdout + made.stderr
    monkeypatch.syspath_prepend(str(tmp_path))
    return importlib.import_module(PACKAGE)


def test_a_generated_client_sends_and_reads(api: Api, generated: ModuleType) -> None:
    """It posts a notification, reads it back and cancels it, with models and no hand-written request."""
    token = api.bearer(role=Role.ADMIN)["Authorization"].removeprefix("Bearer ")
    transport = httpx.WSGITransport(app=api.app)
    client = generated.AuthenticatedClient("http://api", token, httpx_args={"transport": transport})

    accept, read, cancel = (
        importlib.import_module(f"{PACKAGE}.api.notifications.{name}_notification")
        for name in ("accept", "read", "cancel")
    )
    models = importlib.import_module(f"{PACKAGE}.models")
    request = models.NotificationRequest(
        user_id="42",
        category="orders",
        channels=[models.NotificationRequestChannelsItem.SMS],
        content=models.Content(body="Your parcel is on its way."),
        recipients=models.Recipients(sms="+447700900000"),
    )
    accepted = accept.sync(client=client, body=request, idempotency_key="order-123")
    assert isinstance(accepted, models.NotificationAccepted)
    shown = read.sync(accepted.id, client=client)
    assert isinstance(shown, models.NotificationView)
    assert [delivery.status for delivery in shown.deliveries] == ["PENDING"]
    ended = cancel.sync(accepted.id, client=client)
    assert (ended.status, ended.deliveries[0].result) == (
        "CANCELLED",
        models.CancelledDeliveryViewResult.CANCELLED,
    )
    wrong = accept.sync(client=client, body=request, idempotency_key="a b")
    assert isinstance(wrong, models.ErrorAnswer)
    assert wrong.error.code == "VALIDATION_IDEMPOTENCY_KEY"
