"""Fixtures of the worker's integration tests."""

from tests.worker_harness import run_worker

__all__ = ["run_worker"]
