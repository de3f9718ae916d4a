"""Health and metrics: what orchestrators, load balancers and Prometheus ask. No token is needed.

`/live` says that this process serves requests, and asks nobody. `/ready` says that it can accept, which takes the
database alone: while Redis or Kafka is down, what is accepted waits in the table.
"""

from datetime import UTC, datetime
from http import HTTPStatus

import orjson
from flask import Response, current_app
from flask_smorest import Blueprint
from prometheus_client import CONTENT_TYPE_LATEST

from app.api.answers import ErrorAnswer, HealthAnswer
from app.api.auth import public
from app.api.context import services
from app.api.errors import JSON, answer
from app.api.openapi import operation, route
from app.domain.instants import instant
from app.services.health import Health

blueprint = Blueprint("health", __name__, description="Health and metrics")

METRICS = "arauto_metrics"
"""The application's extension that returns what `/metrics` answers."""
_RETRY_AFTER = {"Retry-After": "5"}
_OK = b'{"status":"ok"}'
_UP_OR_NOT = {
    HTTPStatus.OK: ("Yes.", None),
    HTTPStatus.SERVICE_UNAVAILABLE: ("No; the code says why.", ErrorAnswer),
}


@route(
    blueprint,
    "GET",
    "/live",
    operation("Does this process serve requests?", {HTTPStatus.OK: ("Yes.", None)}),
)
@public
def live() -> Response:
    """It depends on nothing."""
    return Response(_OK, mimetype=JSON)


@route(
    blueprint,
    "GET",
    "/ready",
    operation("Can notifications be accepted?", _UP_OR_NOT),
)
@public
def ready() -> Response:
    """It needs the database."""
    return Response(_OK, mimetype=JSON) if services().health.is_ready() else _unavailable()


@route(
    blueprint,
    "GET",
    "/startup",
    operation("Has this process started?", _UP_OR_NOT),
)
@public
def startup() -> Response:
    """It has once it reached a migrated database."""
    return Response(_OK, mimetype=JSON) if services().health.has_started() else _unavailable()


@route(
    blueprint,
    "GET",
    "/health",
    operation(
        "How are the parts?",
        {
            HTTPStatus.OK: ("Notifications are accepted; `degraded` when their delivery waits.", HealthAnswer),
            HTTPStatus.SERVICE_UNAVAILABLE: ("Notifications cannot be accepted.", HealthAnswer),
        },
    ),
)
@public
def health() -> Response:
    """One line a part."""
    whole, checks = services().health.report()
    body = orjson.dumps({"status": whole, "timestamp": instant(datetime.now(UTC)), "checks": checks})
    if whole is Health.DOWN:
        return Response(body, HTTPStatus.SERVICE_UNAVAILABLE, _RETRY_AFTER, mimetype=JSON)
    return Response(body, mimetype=JSON)


@route(
    blueprint,
    "GET",
    "/metrics",
    operation("Metrics of this server's processes", {HTTPStatus.OK: ("Prometheus text format.", None)}),
)
@public
def metrics() -> Response:
    """For Prometheus."""
    return Response(current_app.extensions[METRICS](), content_type=CONTENT_TYPE_LATEST)


def _unavailable() -> Response:
    return answer(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "INFRA_DATABASE_UNAVAILABLE",
        "The database does not answer, or has no tables yet.",
        headers=_RETRY_AFTER,
    )
