"""What `arauto up` prints when everything is ready: the addresses, a token, and a first notification to paste."""

from pathlib import Path
from typing import Any


def summary(about: dict[str, Any], folder: Path, seconds: float) -> str:
    """Return the text for the person who started the stack."""
    broker = {"light": "light broker (in memory only)", "direct": "none (TRANSPORT=direct)"}
    return f"""
Ready after {seconds:.0f} s. Ctrl-C stops everything; the data stay in {folder}

  API        {about["api"]}/docs
  Streams    {about["stream"]}/v1/inbox/stream   (live inboxes)
  Sandbox    {about["sandbox"]}/outbox   (what the providers got)
  Flower     {about["flower"]}   (queues and workers)
  PostgreSQL {about["database_url"]}
  Valkey     {about["redis_url"]}
  Kafka      {about["kafka_bootstrap"]}   {broker.get(about["broker"], "Apache Kafka")}
  Logs       {folder / "logs"}
  Token      {about["token"]}

A first notification:

curl -sS {about["api"]}/v1/notifications -H 'Authorization: Bearer {about["token"]}' \
-H "Idempotency-Key: first-$(date +%s%N)" -H 'Content-Type: application/json' \
-d '{{"user_id": "42", "category": "security", "priority": "HIGH", "channels": ["SMS", "EMAIL"], \
"content": {{"title": "Hello", "body": "Your code is 123456"}}, \
"recipients": {{"SMS": "+447700900000", "EMAIL": "ok@sandbox.example.com"}}}}'
"""
