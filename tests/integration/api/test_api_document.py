"""The OpenAPI document is true: requests made from it, right ones and wrong ones, get only answers that it names.

Schemathesis makes them, over every operation. What it finds is a 5xx, a status that the operation does not name,
an answer that does not fit its schema, or one of another content type.
"""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.api import docs
from app.domain.callers import Role
from app.factory import create_app
from app.settings import Settings
from app.wiring import unsubscribe_links
from tests.integration.api.conftest import Api, sms

EXAMPLES = 25
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


def _questions() -> list[object]:
    """Each operation asked rightly, and wrongly too if there is anything to get wrong."""
    paths = create_app(Settings(_env_file=None)).extensions[docs.DOCUMENT]["paths"]
    return [
        pytest.param(path, verb, mode, id=f"{verb} {path} {mode.value}")
        for path, verbs in paths.items()
        for verb, operation in verbs.items()
        if verb != "parameters"
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        if mode is GenerationMode.POSITIVE or {"requestBody", "parameters"} & {*operation, *verbs}
    ]


@pytest.mark.parametrize(("path", "verb", "mode"), _questions())
def test_every_answer_is_documented(api: Api, path: str, verb: str, mode: GenerationMode) -> None:
    """As an administrator, so that no operation hides behind a missing scope; half of the ids exist."""
    operation = schemathesis.openapi.from_wsgi("/openapi.json", api.app)[path][verb]
    headers = api.bearer(role=Role.ADMIN)
    present = _things(api)

    @seed(0)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), is_present=st.booleans())
    def ask(case: Case, is_present: bool) -> None:
        if is_present:
            for beginning, names in present.items():
                if path.startswith(beginning):
                    case.path_parameters.update(names)
                    break
        case.call_and_validate(headers=headers, checks=CHECKS)

    ask()


def _things(api: Api) -> dict[str, dict[str, str]]:
    """Make one of each thing that a path can name; return the names by the beginning of the path."""
    headers = api.bearer(role=Role.ADMIN)
    key = api.client.post(
        "/v1/api-keys", json={"name": "k", "scopes": ["keys:manage"]}, headers=headers
    ).get_json()
    api.client.put("/v1/users/ana", json={"email": "ana@example.com"}, headers=headers)
    phone = {"platform": "IOS", "token": "sandbox:ok"}
    device = api.client.post("/v1/users/ana/devices", json=phone, headers=headers).get_json()
    erasure = api.client.delete("/v1/users/bea", headers=headers).get_json()
    entry = api.client.post(
        "/v1/suppressions", json={"channel": "EMAIL", "address": "a@example.com"}, headers=headers
    ).get_json()
    api.client.put("/v1/frequency-caps/news", json={"limit": 3, "window_seconds": 60}, headers=headers)
    link = str(unsubscribe_links(api.settings).url("demo", "u1", "news"))
    return {
        "/v1/users/{identifier}/devices/{": {"identifier": "ana", "device": device["id"]},
        "/v1/users/{": {"identifier": "ana"},
        "/v1/erasures/{": {"identifier": erasure["id"]},
        "/v1/suppressions/{": {"identifier": entry["id"]},
        "/v1/unsubscribe/{": {"token": link.rpartition("/")[2]},
        "/v1/notifications/{": {"identifier": api.post(sms()).get_json()["id"]},
        "/v1/frequency-caps/{": {"category": "news"},
        "/v1/api-keys/{": {"identifier": key["id"]},
    }
