"""How the commands reach the API: where it is, with which token, and what its refusals mean."""

import json
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from app.cli.output import fail

STACK = Path(".arauto")
"""Where `make run` keeps its stack, seen from the project's folder."""

_TIMEOUT_SECONDS = 15.0
_ADVICE = {
    HTTPStatus.BAD_REQUEST: "correct what the message names",
    HTTPStatus.UNAUTHORIZED: "get a token (arauto token) or a key, and pass it with --token or ARAUTO_TOKEN",
    HTTPStatus.FORBIDDEN: "get a token that may: arauto token --scope …",
    HTTPStatus.NOT_FOUND: "check the id, and that the token is of the tenant that owns it",
    HTTPStatus.UNPROCESSABLE_ENTITY: "correct what the message names",
    HTTPStatus.SERVICE_UNAVAILABLE: "the API cannot reach its database: arauto doctor",
}


@dataclass(frozen=True, slots=True)
class Api:
    """An API and a token for it."""

    url: str
    token: str

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[Any, dict[str, str]]:
        """Return the decoded answer and its headers in lower case; ends the command when it is refused."""
        try:
            return self.ask(method, path, body, **headers)
        except HTTPError as error:
            self.give_up(error)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[Any, dict[str, str]]:
        """Return what `call` does; raise HTTPError when it is refused, for who can do something about it."""
        raw, answered = self.ask_raw(method, path, None if body is None else json.dumps(body).encode(), **headers)
        return json.loads(raw), answered

    def ask_raw(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[bytes, dict[str, str]]:
        """Return the bytes of an answer, and its headers in lower case; raise HTTPError when it is refused."""
        if not self.url.startswith(("http://", "https://")):
            fail(f"not an address of an API: {self.url}", "write it as http://host:port")
        request = Request(  # noqa: S310  the scheme was just checked
            self.url.rstrip("/") + path,
            data=body,
            method=method,
            headers={
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                **{name.replace("_", "-"): value for name, value in headers.items()},
            },
        )
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            return answer.read(), {name.lower(): value for name, value in answer.headers.items()}

    @staticmethod
    def give_up(error: HTTPError) -> NoReturn:
        """End the command, saying what was refused and what to do about it."""
        with error:
            problem = _refusal(error)
        fail(problem, _ADVICE.get(HTTPStatus(error.code), "see the API's log for this trace id"))


def _refusal(error: HTTPError) -> str:
    try:
        said = json.load(error)["error"]
    except (ValueError, KeyError, TypeError):
        return f"the API answered {error.code}"
    details = f" {json.dumps(said['details'], ensure_ascii=False)}" if said.get("details") else ""
    return f"{said.get('code')} ({error.code}): {said.get('message')}{details} [trace {said.get('trace_id')}]"


def find_api(url: str, token: str, data: Path) -> Api:
    """Return the API that is meant: as named, else of the stack whose run.json is in `data`, else of the settings.

    A missing token is that of the running stack, else one is minted with JWT_SECRET.
    """
    stack = running_stack(data)
    if not url and stack:
        url = stack.get("api", "")
        token = token or stack.get("token", "")
    if url and token:
        return Api(url, token)
    from app.services.tokens import NotOurTokensError, mint  # noqa: PLC0415
    from app.settings import get_settings  # noqa: PLC0415

    settings = get_settings()
    url = url or f"http://{settings.api_host}:{settings.api_port}"
    try:
        return Api(url, token or mint(settings, "demo", "arauto-cli"))
    except NotOurTokensError as error:
        fail(str(error), "pass a token or an API key (arauto key create) with --token or ARAUTO_TOKEN")


def running_stack(data: Path) -> dict[str, Any]:
    """Return what the run.json of the stack in `data` says, or nothing when none runs there."""
    try:
        found = json.loads((data / "run.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
