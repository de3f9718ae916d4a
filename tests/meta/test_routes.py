"""The HTTP surface: the OpenAPI document and the routes are the same, and each route says who may call it."""

import re

from app.api.auth import kinds_of_routes, routes_without_scope
from app.domain.request_kinds import RequestKind
from app.factory import create_app
from app.settings import Settings

PAGES = {"/docs", "/openapi.json"}


def _app():
    return create_app(Settings(_env_file=None))


def _routes() -> set[tuple[str, str]]:
    found = set()
    for rule in _app().url_map.iter_rules():
        path = re.sub(r"<(?:[^:>]+:)?([^>]+)>", r"{\1}", rule.rule)
        if path != "/" and not any(path == page or path.startswith(f"{page}/") for page in PAGES):
            found |= {(path, method.lower()) for method in rule.methods - {"HEAD", "OPTIONS"}}
    return found


def _document() -> dict:
    answer = _app().test_client().get("/openapi.json")
    assert answer.status_code == 200
    return answer.get_json()


def test_every_route_says_who_may_call_it():
    """A view that neither asks for a scope nor is declared public would be open by accident."""
    assert routes_without_scope(_app()) == []


def test_every_route_is_counted_as_something():
    """A view that asks for a scope has a kind for each of its methods; marks of what was read have their own.

    Fails for a method that no kind knows, and for a read mark that would use up the fifty writes of a minute.
    """
    kinds = kinds_of_routes(_app())
    assert {path for path, _ in kinds} >= {"/v1/notifications", "/v1/audit"}
    assert [route for route, kind in kinds.items() if kind is None] == []
    marks = {route for route in kinds if re.search(r"/(un)?read(-all)?$", route[0]) and route[1] != "GET"}
    assert all(kinds[route] is RequestKind.READ_MARK for route in marks), marks


def test_every_route_with_a_scope_documents_429():
    """Each of them can answer so, and says it."""
    for path, verbs in _document()["paths"].items():
        for verb, operation in verbs.items():
            if verb != "parameters" and operation.get("security"):
                assert "429" in operation["responses"], (verb, path)


def test_the_openapi_document_equals_the_routes():
    """A client generator sees each route and no other."""
    paths = _document()["paths"]
    described = {(path, verb) for path, verbs in paths.items() for verb in verbs if verb != "parameters"}
    assert described == _routes()


def test_the_openapi_document_is_3_1():
    """The version that its readers expect."""
    assert _document()["openapi"].startswith("3.1")


def test_the_openapi_document_knows_our_errors_only():
    """Fails when flask-smorest adds its own: a client generator would make two kinds of error of one."""
    document = _document()
    assert not {"Error", "PaginationMetadata"} & set(document["components"]["schemas"])
    assert "default" not in {
        code
        for verbs in document["paths"].values()
        for described in verbs.values()
        if isinstance(described, dict)
        for code in described.get("responses", {})
    }


def test_every_operation_describes_its_errors():
    """Each operation under /v1 names the one shape of errors for what can go wrong."""
    for path, verbs in _document()["paths"].items():
        for verb, operation in verbs.items():
            if path.startswith("/v1") and verb != "parameters":
                answers = set(operation["responses"])
                assert answers & {"default", "401", "404"}, (verb, path)


def test_the_docs_page_loads_nothing_from_elsewhere():
    """The interactive page and its assets come from this server."""
    page = _app().test_client().get("/docs", follow_redirects=True)
    assert page.status_code == 200
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", page.get_data(as_text=True))
