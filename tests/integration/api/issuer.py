"""An issuer of tokens: keys of its own, and a server that publishes them, is slow, breaks or is away on demand."""

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm


def claims(**chosen: Any) -> dict[str, Any]:
    """The claims of a token that may read; `...` leaves one out."""
    now = int(time.time())
    usual = {"sub": "s", "tenant": "demo", "scope": "notifications:read", "iat": now, "exp": now + 60}
    return {name: value for name, value in (usual | chosen).items() if value is not ...}


class Issuer:
    """Publishes keys at `url`. `mode` is what its server does, the name of one of the methods that answer."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm
        self.private: dict[str, Any] = {}
        self.extra: list[Any] = []
        self.fetches = 0
        self.mode = "answer"
        self.release = threading.Event()
        self.add("first")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"

    def add(self, kid: str) -> None:
        self.private[kid] = (
            rsa.generate_private_key(65537, 2048)
            if self.algorithm == "RS256"
            else ec.generate_private_key(ec.SECP256R1())
        )

    def jwk(self, kid: str) -> dict[str, Any]:
        convert = RSAAlgorithm if self.algorithm == "RS256" else ECAlgorithm
        public: dict[str, Any] = convert.to_jwk(self.private[kid].public_key(), as_dict=True)
        return public | {"kid": kid, "use": "sig", "alg": self.algorithm}

    def published(self) -> bytes:
        return json.dumps({"keys": [*self.extra, *(self.jwk(kid) for kid in self.private)]}).encode()

    def sign(self, kid: str = "first", headers: dict[str, Any] | None = None, **chosen: Any) -> str:
        return jwt.encode(claims(**chosen), self.private[kid], self.algorithm, {"kid": kid} | (headers or {}))

    def close(self) -> None:
        self.release.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:  # noqa: C901  one small method a way to answer
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.fetches += 1
                with suppress(OSError):
                    getattr(self, f"_{issuer.mode}")()

            def _answer(self, body: bytes | None = None, status: int = 200) -> None:
                body = issuer.published() if body is None else body
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _fail(self) -> None:
                self._answer(b"", 500)

            def _hang(self) -> None:
                issuer.release.wait(20)

            def _drip(self) -> None:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not issuer.release.wait(0.05):
                    self.wfile.write(b"x")

            def _redirect(self) -> None:
                self.send_response(302)
                self.send_header("Location", f"{issuer.url}/elsewhere")
                self.end_headers()

            def _flood(self) -> None:
                self._answer(issuer.published() + b" " * 300_000)

            def _junk(self) -> None:
                self._answer(b'{"keys": [1, {"kty": "oct", "k": "c2VjcmV0"}]}')

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        return Handler
