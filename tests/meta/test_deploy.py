"""docker-compose.yml, the supervisor behind `make run`, the Makefile and the settings agree.

No container engine runs where these tests run, so the file is held against the Compose Specification's own schema,
which the package check-jsonschema carries.
"""

import json
import re
import sys
from importlib import resources

import jsonschema
import pytest
import yaml

from app.queues import BATCH_QUEUE, LANES, RELAY_QUEUE
from app.settings import Settings
from embedded.parts import jobs, parts
from tests.meta import ROOT

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
OURS = {key: value for key, value in SERVICES.items() if str(value.get("image", "")).startswith("arauto")}
ONE_SHOT = {"migrate", "topics"}
POOLS = {"high": 12, "normal": 6, "low": 2}


def test_compose_is_valid():
    """Every key and type is one that the Compose Specification knows."""
    schema = json.loads(
        resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text()
    )
    jsonschema.validators.validator_for(schema)(schema).validate(COMPOSE)


def test_compose_rejects_a_misspelt_key():
    """The schema is one that can fail: a misspelt key in a service is an error."""
    schema = json.loads(
        resources.files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text()
    )
    broken = {**COMPOSE, "services": {**SERVICES, "api": {**SERVICES["api"], "helthcheck": {}}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validators.validator_for(schema)(schema).validate(broken)


def test_compose_has_every_part():
    """The parts of `make run`, the two jobs and the mail catcher."""
    assert set(SERVICES) == {
        *("postgres", "valkey", "kafka", "mail", "sandbox", "migrate", "topics", "api", "beat", "relay", "bridge"),
        "stream",
        *("worker-high", "worker-normal", "worker-low", "flower"),
    }


@pytest.mark.parametrize("service", sorted(set(SERVICES) - ONE_SHOT))
def test_every_service_has_a_health_check(service):
    """Compose waits for health, so a service without a check would count as ready at once."""
    assert SERVICES[service]["healthcheck"]["test"]


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_a_service_waits_for_what_it_needs(service):
    """Servers must be healthy and the migrate job done; no dependency is a bare name without a condition."""
    needed = SERVICES[service].get("depends_on", {})
    assert isinstance(needed, dict)
    for target, how in needed.items():
        expected = "service_completed_successfully" if target in ONE_SHOT else "service_healthy"
        assert how["condition"] == expected
        assert target in SERVICES


def test_a_named_volume_keeps_what_must_outlive_a_container():
    """Each server's data is in a named volume, and no volume is declared in vain."""
    mounted = {str(volume).split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert mounted == set(COMPOSE["volumes"])
    assert {"postgres", "valkey", "kafka"} <= mounted


@pytest.mark.parametrize("service", sorted(OURS))
def test_every_variable_in_compose_is_a_setting(service):
    """A misspelt variable would be ignored in silence."""
    assert set(OURS[service].get("environment", {})) <= {name.upper() for name in Settings.model_fields}


def test_the_environment_of_compose_makes_valid_settings():
    """The values, with their development defaults filled in, pass the settings' own checks."""
    filled = {
        key.lower(): re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))
        for key, value in SERVICES["api"]["environment"].items()
    }
    assert Settings(_env_file=None, **filled).environment == "development"


def test_no_secret_is_written_into_compose():
    """Passwords and keys come from the environment; what stands beside them is a default for development."""
    for service in SERVICES.values():
        for key, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|TOKEN", key):
                assert str(value).startswith("${"), key


def _consumed(command: list[str]) -> set[str]:
    return set(command[command.index("-Q") + 1].split(",")) if "-Q" in command else set()


def _concurrency(command: list[str]) -> int:
    return int(command[command.index("-c") + 1])


def test_every_queue_has_a_consumer_in_compose():
    """A queue that nobody reads would fill up without an error."""
    consumed = set().union(*(_consumed(service["command"]) for service in OURS.values()))
    assert consumed == {lane.queue for lane in LANES.values()} | {RELAY_QUEUE, BATCH_QUEUE}


def _as_typed(command: tuple[str, ...]) -> list[str]:
    """Return a supervisor's command as one types it: the installed scripts instead of `python -m`."""
    assert command[:2] == (sys.executable, "-m")
    words = list(command[2:])
    return {"app.cli": ["arauto"], "sandbox": ["python", "-m", "sandbox"]}.get(words[0], [words[0]]) + words[1:]


def _without_places(command: list[str]) -> list[str]:
    """Drop addresses and ports, which are the machine's and not the system's."""
    joined = " ".join(command)
    return re.sub(r" --(?:host|[a-z]*-?port|address)[= ]\S+", "", joined).split()


def test_compose_and_make_run_start_the_same_commands():
    """Each process and job of the supervisor is a service of compose with the same command."""
    ports = dict.fromkeys(("api", "stream", "sandbox", "smtp", "flower"), 1)
    known = [*parts(ports, with_kafka=True), *jobs(with_kafka=True)]
    supervised = {part.name: _without_places(_as_typed(part.command)) for part in known}
    assert {key: _without_places(service["command"]) for key, service in OURS.items()} == supervised


@pytest.mark.parametrize(("queue", "slots"), POOLS.items())
def test_each_pool_starts_with_its_slots(queue, slots):
    """Compose starts 12, 6 and 2 slots for HIGH, NORMAL and LOW."""
    command = SERVICES[f"worker-{queue}"]["command"]
    assert _consumed(command) == {queue} | ({BATCH_QUEUE} if queue == "low" else set())
    assert _concurrency(command) == slots


def test_the_image_runs_as_an_ordinary_user_from_pinned_packages():
    """The last stage names a user, and nothing is installed without its hash."""
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^USER \d+$", text.rpartition("\nFROM ")[2], re.MULTILINE)
    for line in re.findall(r"pip install.*", text):
        assert "--require-hashes" in line or "--no-deps" in line


def test_the_image_copies_every_package():
    """A package that is forgotten here is an ImportError in production only."""
    copied = set(re.findall(r"^COPY (\w+) \w+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert copied == {"app", "tasks", "providers", "sandbox", "embedded", "migrations"}
