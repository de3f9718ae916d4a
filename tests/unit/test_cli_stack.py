"""Which servers an operator's command looks at: those that are named, else those of the stack in this folder."""

import json
from pathlib import Path

import pytest

from app.cli.client import STACK
from app.cli.services import meant
from app.settings import Settings

_RUNNING = {
    "database_url": "postgresql://arauto:arauto@127.0.0.1:5433/arauto",
    "redis_url": "redis://127.0.0.1:6380/0",
    "kafka_bootstrap": "",
    "broker": "direct",
}


@pytest.fixture(autouse=True)
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in which a stack runs, and an environment that names no server."""
    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE_URL", "REDIS_URL", "KAFKA_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    STACK.mkdir()
    (STACK / "run.json").write_text(json.dumps(_RUNNING))


def test_a_command_looks_at_the_stack_that_runs_here() -> None:
    """Fails when the defaults win: another stack's ledger would be shown as this one's, and be clean."""
    settings = meant(Settings(_env_file=None))
    assert (settings.database_url, settings.redis_url) == (_RUNNING["database_url"], _RUNNING["redis_url"])
    assert settings.transport == "direct"


def test_servers_that_are_named_are_meant() -> None:
    """An installation that names one of its servers is not mixed with a stack that happens to run here."""
    named = Settings(_env_file=None, redis_url="redis://redis.internal:6379/0")
    assert meant(named) == named


def test_without_a_stack_the_settings_hold(tmp_path: Path) -> None:
    """The file goes with the stack."""
    (tmp_path / STACK / "run.json").unlink()
    assert meant(Settings(_env_file=None)) == Settings(_env_file=None)
