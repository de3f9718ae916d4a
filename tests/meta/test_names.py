"""Names that two places share: tasks and their registration, queues and their consumers, metrics and their use."""

import ast
import re

import pytest

import celeryconfig
from app import queues
from app.celery_app import celery
from app.domain.kinds import Channel, Priority
from app.observability import metrics
from tests.meta import ROOT, modules, name, tree

METRIC = re.compile(r"`([a-z]+(?:_[a-z]+)*_(?:total|seconds|state|pipe|paused|parked|flight))\b")


def _task_names() -> set[str]:
    return {value for key, value in vars(queues).items() if key.startswith("TASK_")}


def test_every_task_name_has_a_task_and_every_task_a_name():
    """A message that names a task which no worker knows is lost, so both sides read `app/queues.py`."""
    import tasks  # noqa: F401  registers them

    celery.loader.import_default_modules()
    registered = {task for task in celery.tasks if not task.startswith(("celery.", "pytest_celery."))}
    assert registered == _task_names()


def test_task_names_carry_a_version():
    """Messages outlive deploys: a changed argument is a new version beside the old one."""
    assert all(re.fullmatch(r"arauto\.[a-z_]+\.v\d+", task) for task in _task_names())


def test_beat_sends_only_tasks_that_exist_to_queues_that_exist():
    """A tick with a misspelt name would be a relay that never runs."""
    for entry in celeryconfig.beat_schedule.values():
        assert entry["task"] in _task_names()
        assert entry["options"]["queue"] in {queue.name for queue in celeryconfig.task_queues}


def test_the_relay_ticks_for_every_priority():
    """One beat entry a priority, so that HIGH never waits for the tick of another."""
    ticks = [e for e in celeryconfig.beat_schedule.values() if e["task"] == queues.TASK_RELAY]
    assert sorted(e["kwargs"]["priority"] for e in ticks) == sorted(p.name for p in Priority)


def test_every_priority_has_a_lane_of_its_own():
    """No two priorities share a topic or a queue, anywhere."""
    assert set(queues.LANES) == set(Priority)
    assert len({lane.topic for lane in queues.LANES.values()}) == len(Priority)
    known = {queue.name for queue in celeryconfig.task_queues}
    assert {lane.queue for lane in queues.LANES.values()} | {queues.RELAY_QUEUE, queues.BATCH_QUEUE} == known


def test_the_database_knows_the_same_channels_and_states():
    """The CHECK constraints of the first migration and the enums name the same values."""
    from app.domain.states import DeliveryState

    text = "".join(path.read_text() for path in modules("migrations"))
    for constraint, values in (("ck_delivery_status", DeliveryState), ("ck_delivery_channel", Channel)):
        check = re.search(rf"{constraint} CHECK \(\w+ IN \(([^)]*)\)", text)
        assert check is not None
        assert set(re.findall(r"'(\w+)'", check[1])) == {value.value for value in values}


def _declared_metrics() -> set[str]:
    kinds = (metrics.Counter, metrics.Gauge, metrics.Histogram)
    return {key for key, value in vars(metrics).items() if isinstance(value, kinds)}


def _used_metrics() -> dict[str, str]:
    used: dict[str, str] = {}
    for path in modules("app", "tasks"):
        if name(path) == "app/observability/metrics.py":
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "metrics":
                used[node.attr] = name(path)
            if isinstance(node, ast.ImportFrom) and node.module == "app.observability.metrics":
                used |= {alias.name: name(path) for alias in node.names}
    return used


def test_every_metric_that_is_used_is_declared():
    """The catalogue is one file, so that dashboards can be written from it."""
    functions = {key for key, value in vars(metrics).items() if callable(value)}
    assert {key: path for key, path in _used_metrics().items() if key not in _declared_metrics() | functions} == {}


def test_every_metric_that_is_declared_is_used():
    """A metric that nothing writes shows a reassuring zero for ever."""
    assert _declared_metrics() - set(_used_metrics()) == set()


@pytest.mark.parametrize(
    "page", sorted([*(ROOT / "docs/runbooks").glob("*.md"), ROOT / "docs/scaling.md"]), ids=name
)
def test_a_metric_that_an_operator_is_told_to_look_at_exists(page):
    """A number in a runbook that nobody counts would stay at nothing, and calm the reader."""
    known = {getattr(metrics, key)._name for key in _declared_metrics()}
    assert {metric.removesuffix("_total") for metric in METRIC.findall(page.read_text())} <= known


def test_no_metric_has_a_label_without_bounds():
    """Tenants, ids and addresses in labels would make a series for each of them."""
    for key in _declared_metrics():
        labels = set(getattr(metrics, key)._labelnames)
        assert not labels & {"tenant", "tenant_id", "user_id", "delivery_id", "notification_id", "recipient"}


def test_migrations_are_one_chain():
    """Numbered without a gap, each on top of the one before: one head."""
    revisions = {}
    for path in sorted((ROOT / "migrations/versions").glob("[0-9]*.py")):
        values = {
            node.targets[0].id: node.value.value
            for node in tree(path).body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        revisions[values["revision"]] = values["down_revision"]
    numbers = [f"{number:04d}" for number in range(1, len(revisions) + 1)]
    assert list(revisions) == numbers
    assert list(revisions.values()) == [None, *numbers[:-1]]
