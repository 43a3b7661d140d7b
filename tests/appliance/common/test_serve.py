"""How the portal is served: who is believed about where a client is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.core.management import call_command

from appliance.common.management.commands import serve


@pytest.mark.parametrize(("public_url", "believed"), [("", False), ("https://waypost.example.org", True)])
def test_a_proxy_is_believed_only_where_there_is_one(
    settings: Any, monkeypatch: pytest.MonkeyPatch, public_url: str, believed: bool
) -> None:
    settings.PORTAL, settings.BEHIND_PROXY = replace(settings.PORTAL, public_url=public_url), bool(public_url)
    told: dict[str, Any] = {}
    monkeypatch.setattr(serve, "prepare", lambda: None)
    monkeypatch.setattr(serve, "first_administrator", lambda **_: "")
    monkeypatch.setattr(serve, "taken", lambda *_: "")
    monkeypatch.setattr("os.nice", lambda _: 0)
    monkeypatch.setattr("uvicorn.run", lambda _, **named: told.update(named))
    call_command("serve")
    assert told["proxy_headers"] is believed
    assert told["forwarded_allow_ips"] == "127.0.0.1"
