"""Tokens for tests, and a client that asks with one of them.

viewer = client_with({Scope.READ}, role="viewer")
assert viewer.get("/overview").status_code == 200
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from appliance.api.models import ApiToken
from appliance.api.operation import PREFIX
from appliance.api.scopes import Scope
from appliance.api.tokens import make
from tests.appliance.accounts.sample_users import user

__all__ = ["ALL", "ApiClient", "client_with", "code_of", "token_for"]

ALL = frozenset(Scope)


def token_for(it: User, scopes: Collection[Scope] = ALL, name: str = "a program") -> tuple[ApiToken, str]:
    """A token and its text."""
    return make(it, name, list(scopes), 30)


class ApiClient:
    """Asks with a token, and without a session."""

    def __init__(self, text: str) -> None:
        self.client = Client(enforce_csrf_checks=True)
        self.client.raise_request_exception = False
        self.headers = {"authorization": f"Bearer {text}"}

    def get(self, path: str, query: Any = None, **headers: str) -> Any:
        return self.client.get(PREFIX + path, query, headers=self.headers | _named(headers))

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        data = body if isinstance(body, bytes | str) else json.dumps({} if body is None else body)
        kind = headers.pop("content_type", "application/json")
        return self.client.post(PREFIX + path, data, content_type=kind, headers=self._with(kind, headers))

    def _with(self, kind: str, headers: dict[str, str]) -> dict[str, str]:
        # Django's client leaves the type of an empty body out.
        return self.headers | _named(headers) | ({"content-type": kind} if kind else {})

    def ask(self, method: str, path: str) -> Any:
        return self.get(path) if method == "GET" else self.post(path)


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def client_with(scopes: Collection[Scope] = ALL, role: str = "operator", name: str = "") -> ApiClient:
    """A client with a token of a user of this role."""
    return ApiClient(token_for(user(role, name), scopes)[1])


def code_of(response: Any) -> tuple[int, str, str]:
    """Status, code and argument of an error."""
    told = json.loads(response.content)
    assert set(told) <= {"code", "message", "argument"}, told
    assert told["message"]
    return response.status_code, told["code"], told.get("argument", "")
