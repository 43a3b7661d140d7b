"""A provider of OpenID Connect on a loopback port: discovery, keys, a sign-in that asks nothing, codes with PKCE, RS256 tokens.

    with FakeProvider() as provider:
        provider.person = {"sub": "7", "email": "ina@example.org", "email_verified": True}
        provider.changed = {"aud": "another client"}

It refuses what a real one refuses (wrong secret, redirect address or verifier, a code twice), and lies where a test asks it to.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

__all__ = ["CLIENT", "SECRET", "FakeProvider"]

CLIENT, SECRET = "waypost", "a secret: with /, % and a colon"
_KEYS = [rsa.generate_private_key(public_exponent=65_537, key_size=2_048) for _ in range(2)]


class FakeProvider:
    def __init__(self) -> None:
        self.person: dict[str, Any] = {"sub": "7", "email": "operator@example.org", "email_verified": True}
        self.changed: dict[str, Any] = {}  # claims of the token that are not as they should be; None: left out
        self.userinfo: dict[str, Any] | None = None
        self.configuration: dict[str, Any] = {}  # what it says of itself besides, or instead
        self.header: dict[str, Any] = {"alg": "RS256", "kid": "one"}
        self.key: Any = _KEYS[0]
        self.failing: dict[str, int] = {}  # path -> status
        self.error = ""  # of the sign-in
        self.asked: list[str] = []
        self.codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.answer(self)

            def do_POST(self) -> None:
                provider.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}/realm"

    def __enter__(self) -> FakeProvider:
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    @staticmethod
    def other_key() -> Any:
        """A key that is not among those it shows."""
        return _KEYS[1]

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        path = parts.path.removeprefix("/realm")
        self.asked.append(path)
        if path in self.failing:
            _send(request, self.failing[path], {"error": "server_error"})
        elif path == "/.well-known/openid-configuration":
            _send(request, 200, self._configured())
        elif path == "/keys":
            key = json.loads(RSAAlgorithm.to_jwk(_KEYS[0].public_key()))
            _send(request, 200, {"keys": [{"kty": "strange"}, key | {"kid": "one", "use": "sig"}]})
        elif path == "/authorize":
            self._authorize(request, {name: each[0] for name, each in parse_qs(parts.query).items()})
        elif path == "/token":
            form = request.rfile.read(int(request.headers["Content-Length"])).decode()
            self._token(request, {name: each[0] for name, each in parse_qs(form).items()})
        elif path == "/userinfo" and request.headers["Authorization"] == "Bearer access":
            _send(request, 200, self.userinfo or {})
        else:
            _send(request, 404, {})

    def _configured(self) -> dict[str, Any]:
        places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
        if self.userinfo is not None:
            places["userinfo_endpoint"] = "userinfo"
        found = {name: f"{self.issuer}/{path}" for name, path in places.items()}
        return {"issuer": self.issuer, **found, **self.configuration}

    def _authorize(self, request: BaseHTTPRequestHandler, asked: dict[str, str]) -> None:
        assert asked["client_id"] == CLIENT
        assert "openid" in asked["scope"].split()
        assert asked["code_challenge_method"] == "S256"
        back = {"state": asked["state"]}
        if self.error:
            back["error"] = self.error
        else:
            back["code"] = secrets.token_urlsafe(8)
            self.codes[back["code"]] = asked
        request.send_response(302)
        request.send_header("Location", f"{asked['redirect_uri']}?{urlencode(back)}")
        request.send_header("Content-Length", "0")
        request.end_headers()

    def _token(self, request: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        name, _, secret = base64.b64decode(request.headers.get("Authorization", "Basic ")[6:]).decode().partition(":")
        if self.configuration.get("token_endpoint_auth_methods_supported") == ["client_secret_post"]:
            name, secret = form["client_id"], form["client_secret"]
        asked = self.codes.pop(form["code"], None)
        challenge = (
            base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        )
        if (unquote(name), unquote(secret)) != (CLIENT, SECRET):
            _send(request, 401, {"error": "invalid_client"})
        elif asked is None or asked["redirect_uri"] != form["redirect_uri"] or asked["code_challenge"] != challenge:
            _send(request, 400, {"error": "invalid_grant"})
        else:
            _send(
                request, 200, {"access_token": "access", "token_type": "Bearer", "id_token": self.token(asked["nonce"])}
            )

    def token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce, **self.person}
        claims = {name: each for name, each in {**claims, **self.changed}.items() if each is not None}
        header = {name: each for name, each in self.header.items() if name != "alg"}
        return jwt.encode(claims, self.key, algorithm=self.header["alg"], headers=header)


def _send(request: BaseHTTPRequestHandler, status: int, body: dict[str, Any]) -> None:
    text = json.dumps(body).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(text)))
    request.end_headers()
    request.wfile.write(text)
