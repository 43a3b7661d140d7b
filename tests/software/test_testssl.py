"""Our STARTTLS and our implicit TLS, as testssl.sh sees them: without a finding above low."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.deliverer.authority import Authority
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.appliance import free_port
from tests.software.core import core_with
from tests.software.programs import program, run

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ABOVE_LOW = ("MEDIUM", "HIGH", "CRITICAL", "FATAL")
# Of the certificate, which a CA of the test has issued for another name: its revocation cannot be looked up, and it ends soon.
NOT_OURS = {"cert_revocation", "cert_expirationStatus", "cert_notAfter", "cert_trust"}


@pytest.mark.parametrize("starttls", [True, False])
async def test_testssl_finds_nothing_above_low(tmp_path: Path, starttls: bool) -> None:
    authority = Authority(tmp_path)
    port = free_port()
    listener = {"address": f"127.0.0.1:{port}", "purpose": "submission", "tls": "implicit", "auth": "required"}
    async with serving(ScriptedServer()) as hop, core_with(tmp_path, hop.port, authority, listeners=[listener]) as core:
        found = tmp_path / "found.json"
        where = ("--starttls", "smtp", f"127.0.0.1:{core.port}") if starttls else (f"127.0.0.1:{port}",)
        await run(
            program("testssl"), "--quiet", "--color", "0", "--warnings", "off", "--openssl-timeout", "10",
            "--protocols", "--std", "--fs", "--server-defaults", "--vulnerable", "--jsonfile", found, "--add-ca",
            authority.file, *where, code=None,
        )  # fmt: skip
    findings = json.loads(found.read_text())
    assert any(each["id"] == "TLS1_3" and each["severity"] == "OK" for each in findings), findings
    bad = [
        (each["id"], each["severity"], each["finding"])
        for each in findings
        if each["severity"] in ABOVE_LOW and each["id"].split(" ")[0] not in NOT_OURS
    ]
    assert bad == []
