"""Celery's way in: `celery -A tasks worker -Q high`. Tasks parse, call one use case and translate, no more.

The worker's configuration is judged before it takes its first message; logging is ours from the first line.
"""

import logging
from importlib import import_module
from typing import Any

from celery.signals import setup_logging, worker_init, worker_ready

from app.celery_app import celery as app
from app.celery_app import unsafe_settings
from app.settings import get_settings

__all__ = ["app"]


def _log_as_all_processes_do(**_: Any) -> None:
    from app.observability.logging import configure  # noqa: PLC0415  only a process that runs tasks needs it

    configure(get_settings(), process="celery")
    logging.getLogger("celery.beat").setLevel(logging.WARNING)


def _refuse_what_breaks_the_protocol(sender: Any, **_: Any) -> None:
    pool = sender.pool_cls if isinstance(sender.pool_cls, str) else sender.pool_cls.__module__.rpartition(".")[2]
    wrong = unsafe_settings(sender.app.conf, sender.prefetch_multiplier, pool)
    if wrong:
        # A signal's receiver may not raise an ordinary exception: Celery would log it and go on.
        raise SystemExit("This worker would break the delivery protocol: " + "; ".join(wrong))


def _serve_metrics(**_: Any) -> None:
    from app.observability import metrics  # noqa: PLC0415  only a process that runs tasks needs it

    metrics.serve(get_settings())


def _say_that_it_is_ready(**_: Any) -> None:
    from app.observability.logging import announce  # noqa: PLC0415  only a process that runs tasks needs it

    announce("worker_ready")


setup_logging.connect(_log_as_all_processes_do, weak=False)
worker_init.connect(_refuse_what_breaks_the_protocol, weak=False)
worker_init.connect(_serve_metrics, weak=False)
worker_ready.connect(_say_that_it_is_ready, weak=False)

for _module in ("tasks.relay", "tasks.upkeep", "tasks.deliver", "tasks.mark", "tasks.batch"):
    import_module(_module)
