"""The tests' view of the provider simulator: its outbox and its figures over HTTP, as any script sees them."""

import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A running sandbox."""

    url: str
    smtp_url: str

    def _call(self, path: str, method: str = "GET") -> Any:
        request = urllib.request.Request(self.url + path, method=method, headers={"Accept": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def is_up(self) -> bool:
        """Whether it answers."""
        try:
            self._call("/stats")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    def outbox(self, **query: object) -> list[dict[str, Any]]:
        """The calls it took, newest first; filtered by recipient, channel, reference, limit."""
        asked = urllib.parse.urlencode({"limit": 100_000} | query)
        answer: list[dict[str, Any]] = self._call(f"/outbox?{asked}")
        return answer

    def stats(self) -> dict[str, Any]:
        """Its counters."""
        answer: dict[str, Any] = self._call("/stats")
        return answer

    def clear(self) -> None:
        """Empty the outbox and the counters."""
        self._call("/outbox", "DELETE")
