"""The HTTP application: `create_app()` for the server, with other settings or use cases for tests.

It opens no connection: the first request does. So it can be made before a fork, and starts while the database is
still coming up.
"""

import time
from functools import partial

from flask import Flask, Response, g, request

from app import wiring
from app.api import (
    api_keys,
    audit,
    batches,
    bounds,
    categories,
    devices,
    docs,
    errors,
    explain,
    frequency_caps,
    health,
    inbox,
    inbox_tickets,
    limits,
    notifications,
    openapi,
    preferences,
    reading,
    suppressions,
    templates,
    unsubscribe,
    users,
)
from app.api.context import EXTENSION
from app.observability import metrics
from app.observability.logging import configure
from app.settings import Settings, get_settings


def create_app(settings: Settings | None = None, services: wiring.ApiServices | None = None) -> Flask:
    """Return the WSGI application."""
    settings = settings or get_settings()
    configure(settings, process="api")
    app = Flask("app", static_folder=None)
    app.config.update(openapi.options(), MAX_CONTENT_LENGTH=settings.api_max_body_bytes + 1)
    app.config[batches.BODY_LIMIT] = settings.batch_max_body_bytes
    app.config[batches.PIECE_LIMIT] = settings.batch_piece_max_bytes
    app.config[users.BULK_LIMIT_BYTES] = settings.api_bulk_max_body_bytes
    app.url_map.strict_slashes = True
    app.url_map.redirect_defaults = False
    app.url_map.merge_slashes = False
    app.extensions[EXTENSION] = services or wiring.api_services(settings)
    app.extensions[health.METRICS] = partial(metrics.exposition, settings)
    api = openapi.Document(app)
    openapi.describe(api)
    api.register_blueprint(notifications.blueprint)
    api.register_blueprint(reading.blueprint)
    api.register_blueprint(inbox.blueprint)
    api.register_blueprint(batches.blueprint)
    api.register_blueprint(api_keys.blueprint)
    api.register_blueprint(frequency_caps.blueprint)
    api.register_blueprint(audit.blueprint)
    api.register_blueprint(explain.blueprint)
    api.register_blueprint(categories.blueprint)
    api.register_blueprint(preferences.blueprint)
    api.register_blueprint(suppressions.blueprint)
    api.register_blueprint(unsubscribe.blueprint)
    api.register_blueprint(inbox_tickets.blueprint)
    api.register_blueprint(users.blueprint)
    api.register_blueprint(devices.blueprint)
    api.register_blueprint(templates.blueprint)
    api.register_blueprint(health.blueprint)
    app.register_blueprint(docs.blueprint)
    app.extensions[docs.DOCUMENT] = api.spec.to_dict()
    errors.register(app)
    limits.register(app)
    app.before_request(_start_clock)
    bounds.register(app)
    app.after_request(_measure)
    return app


def _start_clock() -> None:
    g.started_at = time.perf_counter()


def _measure(response: Response) -> Response:
    rule = request.url_rule
    route = rule.rule if rule is not None else "unknown"
    metrics.HTTP_REQUEST_SECONDS.labels(request.method, route, response.status_code).observe(
        time.perf_counter() - g.started_at
    )
    return response
