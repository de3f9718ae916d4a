"""The Celery application, without tasks: who only sends imports it and names the task by its string.

`tasks` imports this module and registers the entry points on it; `app` never imports `tasks`. The configuration
is `celeryconfig.py`, read when it is first needed, so that importing this module touches no environment.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, cast

from celery import Celery

from app.settings import get_settings

P = ParamSpec("P")


def make_celery(broker_url: str = "", **transport_options: Any) -> Celery:
    """Return a Celery application configured by `celeryconfig.py`.

    `broker_url` replaces the one of the settings; `transport_options` are laid over the configured ones (socket
    time-outs in seconds, for a sender that must not wait).
    """
    application = Celery("arauto", set_as_current=False)
    application.config_from_object("celeryconfig")
    if broker_url:
        application.conf.broker_url = broker_url
    if transport_options:
        merged = {**application.conf.broker_transport_options, **transport_options}
        application.conf.broker_transport_options = merged
    return application


celery = Celery("arauto")
celery.config_from_object("celeryconfig")


def task(name: str, **options: Any) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Return the decorator that registers a function under the explicit, versioned `name`, on `celery` alone."""
    registered = celery.task(name=name, shared=False, **options)
    return cast("Callable[[Callable[P, None]], Callable[P, None]]", registered)


def unsafe_settings(conf: Any, prefetch_multiplier: int | None = None, pool: str = "threads") -> list[str]:
    """Return what in a worker's configuration breaks the delivery protocol, one sentence each; empty is good.

    `conf` is the application's configuration as the command line left it, `pool` the pool's name.
    """
    options = conf.broker_transport_options
    multiplier = conf.worker_prefetch_multiplier if prefetch_multiplier is None else prefetch_multiplier
    wrong = {
        "task_acks_late must stay on: a killed worker would lose what it had not begun": not conf.task_acks_late,
        "task_reject_on_worker_lost must stay off: it puts a message behind the whole backlog": bool(
            conf.task_reject_on_worker_lost
        ),
        f"the prefetch multiplier must be 1, not {multiplier}: messages would wait in a busy worker": multiplier
        != 1,
        "priority_steps must be [0]: a marker may not overtake ids that wait in another list": list(
            options.get("priority_steps", ())
        )
        != [0],
        "worker_eta_task_limit must stay unset: at the limit a worker stops consuming": bool(
            conf.get("worker_eta_task_limit")
        ),
        f"the pool must be threads, not {pool}: lanes, event loop and recorder live in one process": pool
        not in {"thread", "threads", "solo"},
        "visibility_timeout must be the one of the settings: a shorter one runs messages twice": options.get(
            "visibility_timeout"
        )
        != get_settings().visibility_timeout_seconds,
    }
    return [sentence for sentence, is_wrong in wrong.items() if is_wrong]
