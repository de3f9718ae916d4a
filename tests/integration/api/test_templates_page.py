"""docs/templates.md: what it says can be done is done here, and its tables are those of the code."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy.engine import Engine

from app.api.template_schemas import PreviewWarning
from app.rendering import filters, international, limits
from app.rendering.bodies import Body
from app.rendering.engine import Environment
from app.services.accept.writing import known_zone
from tests.integration.api.conftest import Api

PAGE = (Path(__file__).parents[3] / "docs/templates.md").read_text()
TEMPLATE, NOTIFICATION, PREVIEW = (json.loads(each) for each in re.findall(r"```json\n(.+?)```", PAGE, re.DOTALL))
FILTERS = [
    (name, source.replace("\\|", "|"), text)
    for name, source, text in re.findall(r"^\| `(\w+)` \| `(\{[{%].*)` \| `(.*)` \|$", PAGE, re.MULTILINE)
]


@pytest.fixture
def page(make_api: Callable[..., Api]) -> Api:
    """An API with the page's template."""
    api = make_api()
    headers = api.bearer(scope="templates:write")
    for status in (201, 200):
        response = api.client.put("/v1/templates/order-shipped", json=TEMPLATE, headers=headers)
        assert response.status_code == status, response.text
    return api


def test_the_notification_of_the_page_is_accepted(page: Api, engine: Engine) -> None:
    """In the reader's language, with the text of the inbox."""
    response = page.post(NOTIFICATION)
    assert response.status_code == 202, response.text
    shown = page.read(response.get_json()["id"]).get_json()
    assert shown["locale"] == "pt-BR"
    assert shown["content"] == {"title": "On its way", "body": "Your order of €19.90 was sent."}


def test_the_preview_of_the_page_warns_as_it_says(page: Api) -> None:
    """The value that is missing, and the languages that are."""
    headers = page.bearer(scope="templates:read")
    shown = page.client.post("/v1/templates/order-shipped/preview", json=PREVIEW, headers=headers).get_json()
    assert {"VARIABLE_MISSING", "LOCALE_FALLBACK"} == {each["code"] for each in shown["warnings"]}
    assert shown["channels"]["SMS"]["body"] == "Ana, seu pedido saiu."
    assert "2 things, €0.00" in shown["channels"]["EMAIL"]["body"]


@pytest.mark.parametrize(("name", "source", "text"), FILTERS)
def test_a_filter_does_what_the_page_shows(name: str, source: str, text: str) -> None:
    """Each example gives the result beside it."""
    part = (
        {"subject": "s", "html": source} if name in {"e", "escape", "nl2br"} else {"subject": "s", "text": source}
    )
    assert f"|{name}" in source
    made = Body("EMAIL", part).render({}, "en", known_zone("UTC"))
    assert (made.html or made.body) == text


def test_the_page_lists_every_filter_and_warning() -> None:
    """A filter that is not on the page would be found by nobody."""
    offered = {*filters.HTML, *international.FILTERS}
    assert {name for name, _, _ in FILTERS} == {name for name in offered if not name.startswith("_")}
    warnings: Any = PreviewWarning.model_fields["code"].annotation
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", PAGE, re.MULTILINE)) == set(get_args(warnings))
    assert Environment(filters.TEXT, is_html=False).tests.keys() >= {"defined", "none"}


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    """Numbers that people rely on."""
    for number in (limits.SOURCE_CHARACTERS, limits.NODES, limits.DEPTH, limits.STEPS, limits.CHARACTERS,
                   limits.OUTPUT_CHARACTERS):  # fmt: skip
        assert f"{number:,}" in PAGE
    assert f"{limits.SECONDS} s" in PAGE
