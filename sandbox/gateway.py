"""The decision core: what the simulated providers do with one message, whatever protocol carried it.

The HTTP and the SMTP server both ask `Gateway.take` and only translate the verdict. A message counts as taken
at the moment it arrives, also when the answer is delayed or never given: that is what a caller that lost the
answer has to reckon with.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from sandbox.records import Call, Records, SlidingSecond
from sandbox.scripts import Act, script_for

CHANNELS = {"sms": "SMS", "push": "PUSH", "email": "EMAIL"}
PROVIDERS = {"sms": "sandbox-sms", "push": "sandbox-push", "email": "sandbox-smtp"}
COUNTED_REFERENCES = 200_000
MAX_LATENCY_SECONDS = 600.0

_OUTCOMES = {
    Act.FAIL: "failed",
    Act.GONE: "gone",
    Act.THROTTLE: "throttled",
    Act.HANG: "hanging",
    Act.DROP: "dropped",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the server has to do now.

    `outcome` is one of accepted, dropped, failed, gone, throttled (this message only), rate_limited (the whole
    account), down, hanging, invalid. The answer is due after `delay_seconds`; infinity means never.
    """

    outcome: str
    delay_seconds: float = 0.0
    retry_after_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a whole provider behaves, set at run time: it hangs, is down, or is slow."""

    hang: bool = False
    down: bool = False
    latency_seconds: float = 0.0


class Gateway:
    """The three simulated providers of one process, with their limits, behaviours and records."""

    def __init__(
        self,
        limits: Mapping[str, int] | None = None,
        latency_ms: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._default = Behaviour(latency_seconds=latency_ms / 1000.0)
        self.records = Records(tuple(PROVIDERS.values()))
        self.behaviours = dict.fromkeys(CHANNELS, self._default)
        self.limits = dict.fromkeys(CHANNELS, 0)
        self.limits.update(limits or {})
        self._windows = {channel: SlidingSecond() for channel in CHANNELS}
        self._seen: OrderedDict[str, int] = OrderedDict()

    def take(
        self,
        channel: str,
        recipient: str,
        reference: str,
        subject: str,
        body: str,
        *,
        collapse_key: str = "",
        ttl_seconds: int | None = None,
    ) -> Verdict:
        """Decide about one message, and write it into the records. `channel` is sms, push or email."""
        now = self._clock()
        verdict = self._decide(channel, recipient, reference, now)
        texts = (recipient, reference, subject, body)
        how = (verdict.outcome, collapse_key, ttl_seconds)
        self.records.add(Call(time.time(), CHANNELS[channel], PROVIDERS[channel], *texts, *how), now)
        return verdict

    def refuse(self, channel: str, reason: str) -> None:
        """Record a call that could not be read at all."""
        call = Call(time.time(), CHANNELS[channel], PROVIDERS[channel], "", "", "", reason, "invalid")
        self.records.add(call, self._clock())

    def clear(self) -> None:
        """Forget calls, counts and how often each reference came."""
        self.records.clear()
        self._seen.clear()

    def set_limits(self, wanted: Mapping[str, object]) -> None:
        """Set calls a second per channel (0: none); raise ValueError for what is no limit."""
        checked = {}
        for channel, limit in wanted.items():
            if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
                raise ValueError(f"the limit of {channel} must be a whole number of calls a second, 0 for none")
            checked[_channel(channel)] = limit
        self.limits.update(checked)

    def set_behaviours(self, wanted: Mapping[str, object]) -> None:
        """Set how whole providers behave; an empty object or null sets one back to normal."""
        checked = {_channel(channel): self._behaviour(value) for channel, value in wanted.items()}
        self.behaviours.update(checked)

    def _behaviour(self, value: object) -> Behaviour:
        if not value:
            return self._default
        if not isinstance(value, dict) or value.keys() - {"hang", "down", "latency_ms"}:
            raise ValueError('a behaviour is an object with "hang", "down" or "latency_ms"')
        latency = value.get("latency_ms", self._default.latency_seconds * 1000.0)
        if isinstance(latency, bool) or not isinstance(latency, int | float) or latency < 0:
            raise ValueError("latency_ms must be a number that is not negative")
        return Behaviour(
            hang=value.get("hang") is True,
            down=value.get("down") is True,
            latency_seconds=min(latency / 1000.0, MAX_LATENCY_SECONDS),
        )

    def _decide(self, channel: str, recipient: str, reference: str, now: float) -> Verdict:
        behaviour = self.behaviours[channel]
        delay = behaviour.latency_seconds
        if behaviour.hang:
            return Verdict("hanging", inf)
        if behaviour.down:
            return Verdict("down", delay)
        if self._is_over_limit(channel, now):
            return Verdict("rate_limited", delay, 1)
        script = script_for(recipient)
        if script.act is Act.ACCEPT or script.act is Act.SLOW:
            return Verdict("accepted", delay + script.seconds)
        if script.times is not None and self._times(reference or recipient) > script.times:
            return Verdict("accepted", delay)
        return Verdict(
            _OUTCOMES[script.act],
            inf if script.act is Act.HANG else delay,
            1 if script.act is Act.THROTTLE else 0,
        )

    def _is_over_limit(self, channel: str, now: float) -> bool:
        limit = self.limits[channel]
        if not limit:
            return False
        window = self._windows[channel]
        if window.inside(now) >= limit:
            return True
        window.add(now)
        return False

    def _times(self, key: str) -> int:
        """Return how often this reference has come to a counted script, this time included."""
        times = self._seen.pop(key, 0) + 1
        self._seen[key] = times
        if len(self._seen) > COUNTED_REFERENCES:
            self._seen.popitem(last=False)
        return times


def _channel(name: str) -> str:
    if name.lower() not in CHANNELS:
        raise ValueError(f"{name!r} is no channel of the sandbox: use {', '.join(CHANNELS)}")
    return name.lower()
