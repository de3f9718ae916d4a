"""The baseline of the accept: a bare Flask view that runs the same SQL, on the same server with the same flags.

No authentication, no validation, no idempotency look-up beyond the statement itself, no metrics, no nudge.
"""

import os
from typing import Any

import orjson
import psycopg2
from flask import Flask, Response, request
from psycopg2.pool import ThreadedConnectionPool

from app.db import lists
from app.db.accept_context import READ
from app.db.notifications import ACCEPT
from app.domain.ids import mint, minted_at

_AS_TENANT = "SET LOCAL ROLE arauto_api; SELECT set_config('arauto.tenant', %(tenant_id)s, true); "

_LEAST, _BEYOND = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"


def create_app() -> Flask:
    """Return the bare application."""
    app = Flask("bare")
    threads = int(os.environ.get("API_THREADS", "8"))
    pool = ThreadedConnectionPool(threads, threads, os.environ["DATABASE_URL"], options="-c jit=off")

    @app.post("/v1/notifications")
    def accept() -> Response:
        body = request.get_json()
        ids = mint(1 + len(body["channels"]))
        first, *rest = [str(identifier) for identifier in sorted(ids)]
        made = zip(rest, body["channels"], strict=True)
        answer = orjson.dumps({"id": first, "deliveries": [{"id": i, "channel": c} for i, c in made]}).decode()
        _store(pool, body, answer, first, rest, minted_at(ids[0]).isoformat())
        return Response(answer, 202, mimetype="application/json")

    @app.get("/v1/notifications")
    def read() -> Response:
        return Response(orjson.dumps({"data": _list(pool, request.args["user_id"])}), mimetype="application/json")

    return app


def _list(pool: ThreadedConnectionPool, user_id: str) -> list[dict[str, Any]]:
    values = {"tenant_id": "demo", "user_id": user_id, "low": _LEAST, "before": _BEYOND, "scan": 21, "limit": 21}
    values |= dict.fromkeys(("category", "channel", "status", "unread"))
    connection = pool.getconn()
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            rows = lists.page(cursor, values)
    finally:
        pool.putconn(connection)
    return [{name: value for name, value in row.items() if name != "sealed"} for row in rows]


def _store(
    pool: ThreadedConnectionPool, body: dict[str, Any], answer: str, first: str, rest: list[str], at: str
) -> None:
    row = {
        "tenant_id": "demo", "route": "POST /v1/notifications", "key": request.headers["Idempotency-Key"],
        "fingerprint": psycopg2.Binary(b"0" * 32), "answer": answer, "answer_later": answer, "id": first,
        "user_id": body["user_id"], "category": body["category"], "priority": 1,
        "sealed": psycopg2.Binary(orjson.dumps(body["content"] | {"recipients": body["recipients"]})),
        "metadata": "{}", "suppressed": "[]", "decision": "[]", "scheduled_local": None,
        "hit_channels": list(body["recipients"]), "hit_indexes": [b"0" * 16] * len(body["recipients"]),
        "delivery_count": len(rest),
        "scheduled_at": body["scheduled_at"], "expires_in": None, "created_at": at,
        "delivery_ids": rest, "channels": body["channels"],
        "device_ids": [None] * len(rest), "held_until": [None] * len(rest), "attempts_allowed": 6,
    }  # fmt: skip
    connection = pool.getconn()
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute(_AS_TENANT + READ, row)
            cursor.fetchone()
            cursor.execute(_AS_TENANT + ACCEPT, row)
            cursor.fetchone()
    finally:
        pool.putconn(connection)
