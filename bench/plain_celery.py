"""The baseline: plain Celery, one task a delivery, prefork, with the same claim and record SQL.

It is what a careful team writes without a pipeline of its own: the id in the message, a claim by compare-and-set,
the call, the record. `PLAIN_PROVIDER_URL` empty means a provider that takes everything at once.
"""

import os
import time
from datetime import UTC, datetime
from typing import Any

import orjson
import psycopg2
import urllib3
from celery import Celery
from celery.signals import worker_process_init

from app.sealing import context
from app.settings import get_settings
from app.wiring import vault

app = Celery("plain", broker=os.environ.get("PLAIN_BROKER_URL", "redis://127.0.0.1:6379/0"))
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=4,
    task_default_queue="plain",
    broker_connection_retry_on_startup=True,
)

_CLAIM = """
UPDATE delivery d SET status = 'SENDING', lease_token = lease_token + 1,
       lease_until = now() + interval '120 seconds', updated_at = now()
FROM notification n
WHERE d.id = %(id)s::uuid AND n.id = %(notification_id)s::uuid
  AND d.status IN ('PENDING', 'QUEUED') AND d.next_attempt_at <= now()
RETURNING d.lease_token, n.tenant_id, n.sealed
"""
_RECORD = """
WITH u AS (
    UPDATE delivery SET status = 'SENT', attempts = attempts + 1, lease_until = NULL, provider = 'plain',
           provider_message_id = %(message_id)s, sent_at = now(), updated_at = now()
    WHERE id = %(id)s::uuid AND lease_token = %(token)s AND status = ANY('{SENDING,UNKNOWN}')
    RETURNING id, tenant_id, attempts
)
INSERT INTO attempt (delivery_id, number, tenant_id, provider, outcome, started_at, duration_ms)
SELECT id, attempts, tenant_id, 'plain', 'accepted', %(started_at)s, %(duration_ms)s FROM u
"""

_state: dict[str, Any] = {}


@worker_process_init.connect  # type: ignore[untyped-decorator]
def _connect(**_: object) -> None:
    connection = psycopg2.connect(os.environ["PLAIN_DATABASE_URL"])
    connection.autocommit = True
    _state["cursor"] = connection.cursor()
    _state["vault"] = vault(get_settings())
    _state["pool"] = urllib3.PoolManager(maxsize=4)


@app.task(name="plain.deliver")  # type: ignore[untyped-decorator]
def deliver(identifier: str, notification_id: str) -> None:
    """Claim one delivery, call the provider, record the answer."""
    cursor = _state["cursor"]
    cursor.execute(_CLAIM, {"id": identifier, "notification_id": notification_id})
    row = cursor.fetchone()
    if row is None:
        return
    token, tenant_id, sealed = row
    said = orjson.loads(_state["vault"].open(context("notification", tenant_id, notification_id), bytes(sealed)))
    started_at, began = datetime.now(UTC), time.perf_counter()
    url = os.environ.get("PLAIN_PROVIDER_URL", "")
    if url:
        answer = _state["pool"].request(
            "POST",
            url,
            json={
                "reference": identifier,
                "to": said["recipients"]["SMS"],
                "title": said["title"],
                "body": said["body"],
            },
        )
        message_id = answer.json().get("id")
    else:
        message_id = identifier
    record = {
        "id": identifier,
        "token": token,
        "message_id": message_id,
        "started_at": started_at,
        "duration_ms": int((time.perf_counter() - began) * 1000),
    }
    cursor.execute(_RECORD, record)
