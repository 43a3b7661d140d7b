"""Encryption and login of mail that leaves, in the real core: what is demanded, sent, logged, recorded and told."""

from __future__ import annotations

import contextlib
import smtplib
from asyncio import to_thread
from pathlib import Path
from typing import Any

from tests.deliverer.authority import Authority
from tests.deliverer.scripted_server import Act, ScriptedServer, serving
from tests.end_to_end.appliance import Appliance

OFFERED = ("PIPELINING", "STARTTLS")


def send(core: Appliance, *recipients: str) -> None:
    with smtplib.SMTP(*core.address) as client:
        for recipient in recipients:
            client.sendmail("from@example.net", [recipient], b"Subject: x\r\n\r\ntext\r\n")


async def test_each_next_hop_gets_the_encryption_that_is_demanded_and_the_records_say_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good = authority.issue("mx.verified.test").server(tmp_path)
    bad = authority.issue("other.test").server(tmp_path)
    users = {"me": "hunter2"}
    async with contextlib.AsyncExitStack() as stack:
        verified = ScriptedServer(keywords=OFFERED, keywords_in_tls=("AUTH PLAIN",), tls=good, users=users)
        broken = ScriptedServer({"STARTTLS": Act.GARBAGE}, keywords=OFFERED)
        wrong = ScriptedServer(keywords=OFFERED, tls=bad)
        plain = ScriptedServer(keywords=OFFERED[:1])
        for server in (verified, broken, wrong, plain):
            await stack.enter_async_context(serving(server))
        hops = {name: f"[127.0.0.1]:{server.port}" for name, server in
                (("verified", verified), ("broken", broken), ("wrong", wrong), ("plain", plain))}  # fmt: skip
        passwords = tmp_path / "passwords"
        passwords.write_text(f"{hops['verified']} me:hunter2\n")
        passwords.chmod(0o600)
        strict = {"level": "verify", "match": ["mx.verified.test"]}
        core = Appliance(
            tmp_path,
            {f"{name}.test": f"smtp:{hop}" for name, hop in hops.items()},
            {
                "tls": {"ca_file": str(authority.file)},
                "client_auth": {"password_file": str(passwords)},
                f'tls_policy."{hops["verified"]}"': strict,
                f'tls_policy."{hops["wrong"]}"': strict,
            },
        )
        try:
            await core.start()
            await to_thread(send, core, "a@verified.test", "b@broken.test", "c@wrong.test", "d@plain.test")
            log = core.home / "log" / "mail.log"
            await core.until(lambda: log.read_text().count(" status=") >= 4, "four attempts")
            text = log.read_text()
            async with core.client() as client:
                names = [line.split(": ")[1] for line in text.splitlines() if "(queue active)" in line][:4]
                told = [await client.call("history", {"queue_id": name}) for name in names]
        finally:
            core.stop()
    assert (len(verified.messages), verified.sessions[0].tls, verified.sessions[0].user) == (1, True, "me")
    assert (len(broken.messages), len(wrong.messages)) == (1, 0)

    policy = f"verify: [tls_policy] {hops['verified']}"
    assert f"Verified TLS connection established to 127.0.0.1{hops['verified']}: TLSv1.3 with cipher TLS_" in text
    assert f"; {policy}\n" in text
    assert " tls=verify, dsn=2.0.0, status=sent" in text
    assert f"no TLS with 127.0.0.1{hops['broken']}: may: sent in the clear: Cannot start TLS" in text
    assert " tls=may/cleartext, dsn=2.0.0, status=sent" in text
    assert f"relay=127.0.0.1{hops['plain']}, " in text
    assert " tls=may/not-offered, dsn=2.0.0, status=sent" in text
    wrong_name = "Server certificate of 127.0.0.1[127.0.0.1] not verified: its certificate is for"
    assert f" tls=verify, dsn=4.7.5, status=deferred ({wrong_name}" in text

    attempts: list[dict[str, Any]] = [
        event for history in told for event in history["events"] if event["event"] == "attempt"
    ]
    levels = {event["destination"].removeprefix("smtp:"): event["tls_level"] for event in attempts}
    assert levels[hops["verified"]] == policy
    assert levels[hops["broken"]].startswith("may: sent in the clear: Cannot start TLS with 127.0.0.1[127.0.0.1]")
    assert levels[hops["plain"]] == "may: sent in the clear: TLS not offered"
    assert levels[hops["wrong"]] == f"verify: [tls_policy] {hops['wrong']}"
    for file in (*(core.home / "log").iterdir(), *(core.home / "run").glob("*.json"), core.output):
        assert b"hunter2" not in file.read_bytes(), file
