"""The cache: read through it, and write so that it cannot keep what is no longer true.

Why no old value stays. Let a writer change rows in a transaction, and a reader read them and keep what it read:

1. A reader may keep a value only under a lease, a random token that it got *before* it read the rows. The token
   lies in the entry itself; `store` keeps the value only while the token is still there.
2. A writer marks the key *before* its transaction can commit. The mark drops the entry with its lease, so whoever
   read earlier cannot keep what it read; and while it stands, readers get no lease: they read the rows and keep
   nothing.
3. The mark is taken away after the commit. A lease granted from then on is followed by a read that sees the
   commit.

So a value that is kept was read under a lease granted when no marked writer was between its mark and its commit,
and every later writer drops it. A writer that dies after its mark leaves it to run out, MARK_SECONDS later,
which is longer than any statement of a request may go on at the server. With several writers each has a mark of
its own. The entry may be evicted at any time: the lease goes with it, and nothing is kept. Tokens are random,
since a counter that is evicted would count again from the start.

What is left: a writer that cannot reach Redis while readers can. It does not wait. The keys go to the courier,
which drops the entries as soon as the server answers, for as long as an entry can live; a process that ends
before that leaves an old value until its lifetime is over. And a server that is restarted from a snapshot would
bring back entries dropped since: entries belong to an era, the server's own run id, learned anew with every
connection.

A stampede is held off three times: an entry is recomputed by one reader shortly before it ends, with a chance that
grows towards the end and with what the reading costs (XFetch: Vattani, Chierichetti, Lowenstein 2015); of those
that find none, one has the lease; threads of its process wait for its result, other processes ask again for a
moment. Joining a reading of another thread never gives a value from before one's own write: one joins by the
token that the server names, and a write in between would have taken it away.
"""

import hashlib
import math
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from threading import Event, Lock
from typing import Any, TypeAlias, TypeVar, cast

import redis
from redis.commands.core import Script

from app.cache.circuit import Circuit
from app.cache.courier import Command, Courier
from app.cache.namespaces import Namespace
from app.observability import metrics

Value = TypeVar("Value")
Key: TypeAlias = tuple[str, ...]

MARK_SECONDS = 30
LEASE_SECONDS = 10
_WAITS_SECONDS = (0.005, 0.01, 0.02, 0.04, 0.08)
"""How long to wait for another process that reads the same; then one reads too."""
_JOIN_SECONDS = 2.0
_LARGEST_BYTES = 65_536
_ERA_DIGITS = 12
_ERRORS = (redis.RedisError, OSError)


class _Flight:
    """A reading that is under way in this process."""

    def __init__(self) -> None:
        self.is_over = Event()
        self.value: Any = None
        self.has_value = False


class Cache:
    """Cache-aside over one Redis. `client` needs time-outs of a fraction of a second, and no retries."""

    def __init__(self, client: "redis.Redis", courier: Courier, era: Callable[[], str]) -> None:
        """Take also what says of which run of the server the entries are; see `Era`."""
        self._client = client
        self._courier = courier
        self._era = era
        self._circuit = Circuit()
        self._look, self._store, self._mark, self._unmark = (
            client.register_script(files(__package__).joinpath(f"{name}.lua").read_text(encoding="utf-8"))
            for name in ("look", "store", "mark", "unmark")
        )
        self._flights: dict[str, _Flight] = {}
        self._lock = Lock()

    def get_or_load(self, namespace: Namespace[Value], key: Key, load: Callable[[], Value]) -> Value:
        """Return what is cached under `key`, else what `load` returns, which is then cached.

        What `load` raises goes up, and nothing is cached. An answer may be as old as the start of this call, or,
        shortly before an entry ends, as the entry, which was true when this call began.
        """
        token = secrets.token_hex(8)
        for pause in (*_WAITS_SECONDS, None):
            found, told = self._ask(namespace, key, token)
            if found in ("hit", "early"):
                try:
                    value = namespace.decode(told)
                except ValueError:
                    self.invalidate(namespace, key)
                    return load()
                return value if found == "hit" else self._load(namespace, key, token, load)
            if found == "lease":
                return self._load(namespace, key, token, load)
            if found != "wait" or pause is None:
                break
            flight = self._flights.get(told.decode())
            if flight is None:
                Event().wait(pause)
            elif flight.is_over.wait(_JOIN_SECONDS) and flight.has_value:
                return cast("Value", flight.value)
        return load()

    def invalidate(self, namespace: Namespace[Any], *keys: Key) -> None:
        """Drop what is cached under `keys`, after the commit of what changed it. Never raises.

        A process that dies between its commit and this leaves the old value until its lifetime is over. `changing`
        does not.
        """
        if not self._try(lambda: self._run(self._unmark, namespace, keys, [""])):
            self._owe(namespace, keys)

    @contextmanager
    def changing(self, namespace: Namespace[Any], *keys: Key) -> Iterator[None]:
        """Around a transaction: from before it to after it, nothing is cached under `keys`.

        One round trip. When the transaction raises, what became of it may not be known, so the marks stay until
        they run out: longer than a statement of a request can go on at the server.
        """
        token = secrets.token_hex(8)
        is_marked = self._try(lambda: self._run(self._mark, namespace, keys, [token, MARK_SECONDS * 1000]))
        try:
            yield
        except BaseException:
            if not is_marked:
                self._owe(namespace, keys)
            raise
        if is_marked:
            for key in keys:
                self._courier.put(self._unmarking(namespace, key, token))
        else:
            self._owe(namespace, keys)

    def _load(self, namespace: Namespace[Value], key: Key, token: str, load: Callable[[], Value]) -> Value:
        flight = _Flight()
        with self._lock:
            self._flights[token] = flight
        began = time.monotonic()
        try:
            value = load()
            flight.value, flight.has_value = value, True
        except BaseException:
            # The lease is given up, so that the next reader need not wait for it to run out.
            self._courier.put(self._unmarking(namespace, key, ""))
            raise
        finally:
            with self._lock:
                del self._flights[token]
            flight.is_over.set()
        raw = namespace.encode(value)
        if len(raw) <= _LARGEST_BYTES:
            took = max(round((time.monotonic() - began) * 1000), 1)
            entry = self._names(namespace, key)[:1]
            self._try(lambda: self._store(keys=entry, args=[token, raw, namespace.lifetime_seconds * 1000, took]))
        return value

    def _ask(self, namespace: Namespace[Any], key: Key, token: str) -> tuple[str, bytes]:
        answer: list[list[bytes]] = []
        early = -math.log(1.0 - random.random())
        arguments: list[str | float] = [token, LEASE_SECONDS * 1000, early]
        self._try(lambda: answer.insert(0, self._look(keys=self._names(namespace, key), args=arguments)))
        result = answer[0][0].decode() if answer else "down"
        metrics.CACHE_LOOKS.labels(namespace.name, result).inc()
        return result, answer[0][1] if answer and len(answer[0]) > 1 else b""

    def _try(self, step: Callable[[], Any]) -> bool:
        """Run a step against the server; tell whether it was done. Nothing is tried while the circuit is open."""
        if not self._circuit.is_closed():
            return False
        try:
            era = self._era()
            step()
            if self._era() != era:
                # A new connection was made for it, to another run of the server: the names were of the last one.
                step()
        except _ERRORS:
            self._circuit.failed()
            return False
        self._circuit.succeeded()
        return True

    def _run(self, script: Script, namespace: Namespace[Any], keys: Sequence[Key], args: list[str | int]) -> None:
        """Run a script for each key, in one round trip."""
        if len(keys) == 1:
            script(keys=self._names(namespace, keys[0]), args=args)
            return
        with self._client.pipeline(transaction=False) as pipeline:
            for key in keys:
                script(keys=self._names(namespace, key), args=args, client=pipeline)
            pipeline.execute()

    def _owe(self, namespace: Namespace[Any], keys: Sequence[Key]) -> None:
        for key in keys:
            self._courier.put(self._unmarking(namespace, key, ""), worth_seconds=namespace.lifetime_seconds)

    def _unmarking(self, namespace: Namespace[Any], key: Key, token: str) -> Callable[[], Command]:
        def command() -> Command:
            # The text and not its hash: a server that forgot the script would refuse the hash.
            return ("EVAL", self._unmark.script, 2, *self._names(namespace, key), token)

        return command

    def _names(self, namespace: Namespace[Any], key: Key) -> list[str]:
        """Return the names of an entry and of its writers' marks. They show no id, and are in one slot."""
        said = b"".join(b"%d:%b" % (len(part.encode()), part.encode()) for part in key)
        place = f"arauto:cache:{{{namespace.name}:{hashlib.sha256(said).hexdigest()[:32]}}}:{self._era()}"
        return [place, f"{place}:marks"]
