"""The OpenAPI 3.1 document: flask-smorest collects the routes, the schemas come from the models that validate."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar, cast

from flask_smorest import Api, Blueprint
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api import answers, batch_schemas, preference_schemas, reading_schemas, template_schemas, user_schemas
from app.api.control_schemas import FrequencyCapList, FrequencyCapRequest, FrequencyCapView
from app.api.schemas import ApiKeyRequest, ApiKeyRotation, NotificationRequest
from app.api.ticket_schemas import StreamTicket, StreamTicketRequest

View = TypeVar("View", bound=Callable[..., Any])

TITLE = "Arauto"
VERSION = "1"
OPENAPI_VERSION = "3.1.0"
_REFERENCE = "#/components/schemas/{model}"
_ERRORS = {
    HTTPStatus.BAD_REQUEST: "The request cannot be understood.",
    HTTPStatus.UNAUTHORIZED: "The token or API key is missing or cannot be accepted.",
    HTTPStatus.FORBIDDEN: "The caller may not; the code says what is lacking.",
    HTTPStatus.NOT_FOUND: "There is no such thing.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large.",
    HTTPStatus.REQUEST_URI_TOO_LONG: "Path and query are too long.",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "The headers are too large.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is not plain JSON in UTF-8.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The request is well formed but cannot be done.",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many requests, or failed sign-ins; `Retry-After` says how long to wait.",
    HTTPStatus.SERVICE_UNAVAILABLE: "Something that is needed does not answer; `Retry-After` says when to repeat.",
}
_OVERSIZED = (HTTPStatus.REQUEST_URI_TOO_LONG, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
_MODELS: tuple[type[BaseModel], ...] = (
    NotificationRequest,
    ApiKeyRequest,
    ApiKeyRotation,
    *batch_schemas.MODELS,
    StreamTicketRequest,
    StreamTicket,
    FrequencyCapRequest,
    FrequencyCapView,
    FrequencyCapList,
    answers.ApiKeyIssued,
    answers.ApiKeyList,
    answers.AuditList,
    template_schemas.TemplateRequest,
    template_schemas.TemplateChoice,
    template_schemas.PreviewRequest,
    template_schemas.TemplateView,
    template_schemas.TemplateList,
    template_schemas.TemplateVersionView,
    template_schemas.TemplateVersionList,
    template_schemas.PreviewView,
    answers.NotificationAccepted,
    answers.NotificationView,
    reading_schemas.NotificationList,
    reading_schemas.InboxList,
    reading_schemas.Marks,
    reading_schemas.ReadAllRequest,
    reading_schemas.ReadAllView,
    reading_schemas.StatisticsView,
    reading_schemas.UnreadCount,
    answers.CancelView,
    answers.Explained,
    answers.HealthAnswer,
    user_schemas.UserFields,
    user_schemas.UserView,
    user_schemas.UserList,
    user_schemas.UserRow,
    user_schemas.UsersBulk,
    user_schemas.BulkAnswer,
    user_schemas.ErasureView,
    user_schemas.DeviceRequest,
    user_schemas.DeviceChange,
    user_schemas.DeviceView,
    user_schemas.DeviceList,
    answers.ErrorAnswer,
    *preference_schemas.REQUESTS,
    *preference_schemas.ANSWERS,
)
_PROOFS = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": "A JWT with sub, tenant, scope and exp. Its role is SERVICE unless it says USER, which"
        " keeps it to the subject's own notifications, or ADMIN, which has every scope. `arauto token` makes one.",
    },
    "apiKey": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "ak_prefix_secret",
        "description": "An API key of a product service, from `POST /v1/api-keys` or `arauto key create`.",
    },
}


@dataclass(frozen=True, slots=True)
class Query:
    """An argument that a route takes in its query; all of them may be left out."""

    name: str
    description: str
    schema: dict[str, Any]


USUAL_ERRORS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE)
"""Of every route that asks who calls."""
BODY_ERRORS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
"""Of every route that takes JSON."""
PAGE_QUERY = (
    Query("limit", "Entries on a page, 20 unless asked.", {"type": "integer", "minimum": 1, "maximum": 100}),
    Query("cursor", "`next_cursor` of the page before.", {"type": "string"}),
)
"""Of every list."""


def options() -> dict[str, Any]:
    """Return flask-smorest's settings; a route of ours serves the document, beside a page with local assets."""
    return {
        "API_TITLE": TITLE,
        "API_VERSION": VERSION,
        "OPENAPI_VERSION": OPENAPI_VERSION,
        "API_SPEC_OPTIONS": {
            "info": {
                "description": "Accepts notifications and delivers them by e-mail, SMS, push and in-app inbox."
            },
        },
    }


class Document(Api):  # type: ignore[misc]  # flask-smorest has no types
    """Collects the routes. Each of them names its errors, so no route gets flask-smorest's own error as well."""

    DEFAULT_ERROR_RESPONSE_NAME = None


def describe(api: Document) -> None:
    """Add what no route says: the schemas, and how a caller proves who it is."""
    for unused in ("Error", "PaginationMetadata"):
        api.spec.components.schemas.pop(unused, None)
    _, definitions = models_json_schema([(model, "validation") for model in _MODELS], ref_template=_REFERENCE)
    for name, schema in sorted(definitions["$defs"].items()):
        api.spec.components.schema(name, schema)
    for name, scheme in _PROOFS.items():
        api.spec.components.security_scheme(name, scheme)


def route(blueprint: Blueprint, method: str, rule: str, described: dict[str, Any]) -> Callable[[View], View]:
    """Register a view under `rule` with the description that `operation` made.

    Its name is the operation's id, after which client generators name what they write.
    """

    def decorate(view: View) -> View:
        documented = blueprint.doc(operationId=view.__name__, **described)(view)
        return cast("View", blueprint.route(rule, methods=[method])(documented))

    return decorate


def operation(
    summary: str,
    successes: Mapping[HTTPStatus, tuple[str, type[BaseModel] | None]],
    *,
    scope: str | None = None,
    body: type[BaseModel] | None = None,
    is_body_required: bool = True,
    errors: Sequence[HTTPStatus] = (),
    headers: Sequence[tuple[str, str]] = (),
    query: Sequence[Query] = (),
) -> dict[str, Any]:
    """Return the description of one operation, for a blueprint's `doc`."""
    responses = {
        str(int(status)): {"description": text} | (_content(model) if model else {})
        for status, (text, model) in successes.items()
    }
    # Whatever asks who calls is counted, and every request is measured, so that no route has to say it.
    counted = (HTTPStatus.TOO_MANY_REQUESTS,) if scope else ()
    for status in dict.fromkeys((*errors, *counted, *_OVERSIZED)):
        responses[str(int(status))] = {"description": _ERRORS[status]} | _content(answers.ErrorAnswer)
    described: dict[str, Any] = {"summary": summary, "responses": responses}
    described["security"] = [{name: [scope]} for name in _PROOFS] if scope else []
    if body is not None:
        described["requestBody"] = {"required": is_body_required} | _content(body)
    parameters: list[dict[str, Any]] = [
        {"in": "header", "name": name, "required": True, "description": text, "schema": {"type": "string"}}
        for name, text in headers
    ]
    parameters += [
        {"in": "query", "name": each.name, "description": each.description, "schema": each.schema}
        for each in query
    ]
    if parameters:
        described["parameters"] = parameters
    return described


def _content(model: type[BaseModel]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": _REFERENCE.format(model=model.__name__)}}}}
