"""Puts tasks into the Celery lists: one LPUSH for many, in order, without Celery's and kombu's cost a message.

A message has the form that kombu's Redis transport writes and Celery's protocol 2 reads (a test lets a real worker
and kombu read it). It goes straight into the list that bears the queue's name, as kombu does for its anonymous
exchange, so a lost binding key (`_kombu.binding.*`) cannot make it vanish. The list is first in, first out: LPUSH
here, BRPOP in the worker; markers depend on that.
"""

import json
import secrets
from collections.abc import Sequence
from typing import Any

import orjson
import redis

from app.domain.kinds import Channel, Priority
from app.queues import TASK_DELIVER, TASK_EXPAND, TASK_MARK, TASK_RELAY

Task = bytes


def deliver_task(queue: str, channel: Channel, ids: Sequence[str], *, is_suspect: bool = False) -> Task:
    """Return the task that delivers `ids`, all of one channel; a suspect is one id that was lost before."""
    chunk = secrets.token_hex(16)
    kwargs = {"v": 1, "chunk": chunk, "channel": channel.value, "ids": list(ids), "suspect": is_suspect}
    return _message(queue, TASK_DELIVER, chunk, kwargs, summary=f"{channel.value} x {len(ids)}")


def mark_task(queue: str, topic: str, partition: int, seq: int) -> Task:
    """Return the task that writes down that a marker came through."""
    kwargs = {"v": 1, "topic": topic, "partition": partition, "seq": seq}
    return _message(queue, TASK_MARK, secrets.token_hex(16), kwargs, summary=f"{topic}/{partition} {seq}")


def relay_task(queue: str, priority: Priority) -> Task:
    """Return the task that runs the relay of `priority`."""
    kwargs = {"v": 1, "priority": priority.name}
    return _message(queue, TASK_RELAY, secrets.token_hex(16), kwargs, summary=priority.name)


def expand_task(queue: str) -> Task:
    """Return the task that goes on with the batches."""
    return _message(queue, TASK_EXPAND, secrets.token_hex(16), {"v": 1}, summary="batches")


def _message(queue: str, task: str, identifier: str, kwargs: dict[str, Any], *, summary: str) -> Task:
    return orjson.dumps(
        {
            "body": orjson.dumps(((), kwargs, {})).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {
                "lang": "py",
                "task": task,
                "id": identifier,
                "root_id": identifier,
                "parent_id": None,
                "group": None,
                "retries": 0,
                "eta": None,
                "expires": None,
                "timelimit": (None, None),
                "argsrepr": "()",
                "kwargsrepr": summary,
                "ignore_result": True,
            },
            "properties": {
                "correlation_id": identifier,
                "reply_to": "",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": queue},
                "priority": 0,
                "body_encoding": None,
                "delivery_tag": identifier,
            },
        }
    )


class TaskList:
    """The Celery lists in the broker. Raises redis.RedisError; a push that failed may have happened."""

    def __init__(self, client: "redis.Redis") -> None:
        self._client = client

    def push(self, queue: str, tasks: Sequence[Task]) -> None:
        """Append `tasks` to the list of `queue`, the first one to be taken first."""
        self._client.lpush(queue, *tasks)

    def length(self, queue: str) -> int:
        """Return how many tasks wait in the list of `queue`."""
        return self._client.llen(queue)


def ids_in(task: Task) -> list[str]:
    """Return the delivery ids that a task carries; empty for another kind of task."""
    body = json.loads(json.loads(task)["body"])
    return list(body[1].get("ids", []))
