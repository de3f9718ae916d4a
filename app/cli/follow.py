"""Following one notification to its end, a line for each step that one of its deliveries takes."""

import time
from dataclasses import dataclass
from typing import Any

import typer

from app.cli.client import Api
from app.domain.states import TERMINAL, DeliveryState

_POLL_SECONDS = 0.25
_ARRIVED = frozenset({DeliveryState.SENT, DeliveryState.DELIVERED})


@dataclass(frozen=True, slots=True)
class Ended:
    """The notification as last seen."""

    notification: dict[str, Any]

    @property
    def has_arrived(self) -> bool:
        """Tell whether every delivery was accepted by its provider or arrived."""
        return all(one["status"] in _ARRIVED for one in self.notification["deliveries"])


def summary(notification: dict[str, Any]) -> str:
    """Return the notification's id and status, and a line for each delivery."""
    lines = [f"{notification['id']} {notification['status']}"]
    lines += [_line(delivery) for delivery in notification["deliveries"]]
    lines += [f"  {one['channel']}: suppressed ({one['reason']})" for one in notification.get("suppressed", [])]
    return "\n".join(lines)


def _line(delivery: dict[str, Any]) -> str:
    parts = [f"  {delivery['channel']}: {delivery['status']}"]
    attempts = delivery.get("attempts") or []
    if attempts:
        last = attempts[-1]
        parts.append(
            f"after attempt {last['number']} ({last['provider']}: {last['outcome']}, {last['duration_ms']} ms)"
        )
    if delivery.get("error_code"):
        parts.append(f"[{delivery['error_code']}]")
    if delivery.get("next_attempt_at") and delivery["status"] == DeliveryState.PENDING and attempts:
        parts.append(f"next at {delivery['next_attempt_at']}")
    return " ".join(parts)


def follow(api: Api, identifier: str, seconds: float, *, quiet: bool) -> Ended:
    """Show each step on stderr until every delivery is at its end or the time is over; return the last look."""
    until = time.monotonic() + seconds
    seen: dict[str, str] = {}
    typer.echo(f"{identifier}", err=quiet)
    while True:
        notification, _ = api.call("GET", f"/v1/notifications/{identifier}")
        for delivery in notification["deliveries"]:
            line = _line(delivery)
            if seen.get(delivery["id"]) != line:
                seen[delivery["id"]] = line
                typer.echo(f"{time.strftime('%H:%M:%S')}{line}", err=quiet)
        if all(one["status"] in TERMINAL for one in notification["deliveries"]):
            return Ended(notification)
        if time.monotonic() >= until:
            typer.echo(f"Not at its end after {seconds:g} s; go on with: arauto watch {identifier}", err=True)
            return Ended(notification)
        time.sleep(_POLL_SECONDS)
