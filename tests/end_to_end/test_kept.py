"""Kept files with a whole core: certificates, DKIM keys and maps come into force under load, and are returned to.

law: kept-files-never-change, law: kept-key-stays-here, law: managed-is-a-layer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import smtplib
import ssl
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.kept_files import Reference, kept_path
from mailcore.control.client import ControlError
from mailcore.control.protocol.table import OPERATIONS
from mailcore.lab.lab import Lab
from tests.end_to_end.test_reload import Clients
from tests.end_to_end.test_settings import run
from tests.eventually import PATIENCE_S
from tests.made_certificates import Authority, Issued
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore, recipients_of, running

AUTHORITY = Authority()


async def change(core: RunningCore, changes: list[dict[str, Any]], why: str = "a test") -> dict[str, Any]:
    """Makes a change, and waits until it is in force."""
    revision = (await core.insist(lambda: core.ask("settings")))["revision"]
    answer: dict[str, Any] = await core.ask("settings_change", why, changes=changes, revision=revision)
    assert not answer["faults"], answer
    return await in_force(core, answer)


async def in_force(core: RunningCore, answer: dict[str, Any]) -> dict[str, Any]:
    await core.control.close()

    async def done() -> bool:
        with contextlib.suppress(ControlError, OSError):
            known = await core.ask("settings")
            return bool(known["in_force"] and (await core.ask("ping"))["manager"])
        await core.control.close()
        return False

    await core.eventually(done, "the change in force")
    return answer


async def put(core: RunningCore, name: str, issued: Issued, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await core.ask(
        "kept_put", kind="certificate", name=name, text=issued.certificate + AUTHORITY.pem, key=issued.key, **more
    )
    return answer


async def use(core: RunningCore, file: str, *place: str, **more: Any) -> dict[str, Any]:
    found = await core.ask("kept_use", file=file, place=list(place), **more)
    return await change(core, found["changes"])


def offered(core: RunningCore, name: str = "mx.example.org") -> tuple[str, ...]:
    """The names in the certificate that a client gets; it trusts the authority."""
    context = ssl.create_default_context(cadata=AUTHORITY.pem)
    context.check_hostname = False
    with smtplib.SMTP("127.0.0.1", core.port, timeout=PATIENCE_S) as client:
        client._host = name  # type: ignore[attr-defined]  # for SNI
        client.starttls(context=context)
        found: Any = client.sock
        return tuple(value for _, value in found.getpeercert()["subjectAltName"])


async def test_a_certificate_comes_into_force_under_load_is_renewed_and_returned_to(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        first = await put(core, "mx", AUTHORITY.issue("mx.example.org"))
        assert not first["faults"]
        facts = first["facts"]["certificate"]
        assert (facts["names"], facts["issuer"], facts["chain"]) == (["mx.example.org"], "Test CA", ["Test CA"])
        with Clients(core.port) as clients:
            await use(core, first["file"], "receiver", "tls_certificate")
            assert await asyncio.to_thread(offered, core) == ("mx.example.org",)
            state = (await core.ask("settings"))["revision"]
            second = await put(core, "mx", AUTHORITY.issue("mx.example.org", "two.example.org"))
            await use(core, second["file"])
            assert await asyncio.to_thread(offered, core) == ("mx.example.org", "two.example.org")
            other = await put(core, "other", AUTHORITY.issue("other.example"))
            await use(core, other["file"], "certificate")
            assert await asyncio.to_thread(offered, core, "other.example") == ("other.example",)
        assert clients.wrong == [], "no client was refused"
        await core.until_empty()
        assert max(Counter(arrival.id for arrival in lab.messages).values()) == 1
        used = {each["file"]: each["used"] for each in (await core.ask("kept"))["files"]}
        assert used[second["file"]] == ["[receiver] tls_certificate"]
        assert used[other["file"]] == ["[[certificate]] other.example"]
        assert used[first["file"]] == []
        revision = (await core.ask("settings"))["revision"]
        await in_force(core, await core.ask("settings_return", to=state, revision=revision))
        assert await asyncio.to_thread(offered, core) == ("mx.example.org",)


async def test_no_answer_and_no_file_for_others_has_a_part_of_the_key(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        issued = AUTHORITY.issue("mx.example.org")
        secret = "".join(issued.key.splitlines()[1:-1])[40:80]
        made = await put(core, "mx", issued)
        await use(core, made["file"], "receiver", "tls_certificate")
        dkim = await core.ask("kept_make", kind="dkim", domain="example.org", selector="2026a")
        answers = [made, dkim, await core.ask("kept"), await core.ask("settings"), await core.ask("settings_history")]
        secrets = [secret]
        for path in (core.home / "kept").rglob("*"):
            if path.is_file():
                is_public = path.parent.name in ("certificate", "ca")
                assert bool(path.stat().st_mode & stat.S_IROTH) == is_public, path
                if path.parent.name in ("key", "dkim"):
                    secrets.append("".join(path.read_text().splitlines()[1:-1])[60:100])
                    with pytest.raises(ControlError, match="never shown"):
                        await core.ask("kept_text", file=f"kept:{path.parent.name}/{path.name}")
        assert len(secrets) == 3
        for wrong in (
            {"key": "x"},
            {"text": issued.key + issued.certificate},
            {"key": AUTHORITY.issue("x.example").key},
        ):
            given = {"kind": "certificate", "name": "mx", "text": issued.certificate, "key": issued.key} | wrong
            answers.append(await core.ask("kept_put", **given))
            assert answers[-1]["faults"]
        for secret in secrets:
            assert secret not in json.dumps(answers, default=str).replace("\\n", "")
        log = (core.home / "log" / "mail.jsonl").read_text() + (core.home / "managed-history.jsonl").read_text()
        assert not any(secret in log for secret in secrets)
    assert not [name for name in OPERATIONS if name.startswith("kept") and "key" in name]


async def test_who_manages_names_no_other_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.pem"
    secret.write_text(AUTHORITY.issue("x.example").key)
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        made = await put(core, "mx", AUTHORITY.issue("mx.example.org"))
        digest = made["file"].rpartition(".")[2]
        revision = (await core.ask("settings"))["revision"]
        for value, words in (
            (str(secret), "use a file that Waypost keeps"),
            (f"kept:certificate/../../../secret.pem.{digest}", "use a file that Waypost keeps"),
            (made["file"].replace("certificate/", "key/"), "a kept file of the kind certificate"),
            (f"kept:certificate/mx.{'0' * 16}", "is not kept here any more"),
        ):
            answer = await core.ask(
                "settings_change", revision=revision,
                changes=[{"key": ["receiver", name], "value": value} for name in ("tls_certificate", "tls_key")],
            )  # fmt: skip
            (fault, *_) = [each for each in answer["faults"] if each["key"] == "receiver.tls_certificate"]
            assert words in fault["reason"]
        assert not (core.home / "managed.toml").exists()


IN_THE_MIDDLE_S = 10  # that a change may take which a kill has met


@pytest.mark.parametrize("at", range(6))
async def test_a_core_that_is_killed_in_the_middle_has_a_whole_file_or_none(tmp_path: Path, at: int) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        first = await put(core, "mx", AUTHORITY.issue("mx.example.org"))
        await use(core, first["file"], "receiver", "tls_certificate")

        async def renew() -> None:
            second = await put(core, "mx", AUTHORITY.issue("mx.example.org", "two.example.org"))
            await use(core, second["file"])

        task = asyncio.create_task(renew())
        await asyncio.sleep(0.003 * at * at)
        with contextlib.suppress(KeyError, ProcessLookupError):
            os.kill(core.processes()["control"], signal.SIGKILL)
        with contextlib.suppress(
            ControlError, OSError, AssertionError
        ):  # TimeoutError: the change is waited for in vain
            async with asyncio.timeout(IN_THE_MIDDLE_S):
                await task
        await core.again()
        known = await core.insist(lambda: core.ask("settings"))
        assert not known["fault"]
        for each in known["settings"]:
            if (reference := Reference.parse(each["value"])) is not None:
                assert reference.digest in kept_path(core.home, reference).name
                assert kept_path(core.home, reference).read_bytes()
        assert "mx.example.org" in await asyncio.to_thread(offered, core)
        assert [each["fault"] for each in (await core.ask("kept"))["files"]] == [""] * len(
            (await core.ask("kept"))["files"]
        )


async def test_an_alias_is_in_force_and_a_map_with_a_fault_is_refused_with_its_line(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        wrong = await core.ask("kept_put", kind="map", name="aliases", text="# ours\nall@example.org\n")
        (fault,) = wrong["faults"]
        assert fault["key"] == "text"
        assert fault["reason"].startswith("line 2: ")
        assert (await core.ask("kept"))["files"] == []
        made = await core.ask(
            "kept_put", kind="map", name="aliases", text="all@example.org kim@example.org, bo@example.org\r\n"
        )
        await use(core, made["file"], "rewriting", "virtual_alias_maps")
        await core.send("all@example.org")
        await core.until_empty()
        assert recipients_of(lab.messages) == ["bo@example.org", "kim@example.org"]
        second = await core.ask("kept_put", kind="map", name="aliases", text="all@example.org kim@example.org\n")
        await use(core, second["file"])
        await core.send("all@example.org")
        await core.until_empty()
        assert recipients_of(lab.messages) == ["bo@example.org", "kim@example.org", "kim@example.org"]
        # As valid recipients the same map would be read otherwise: a map is checked for the setting that it is used in.
        routes = await core.ask("kept_use", file=second["file"], place=["route_maps", "routes"])
        revision = (await core.ask("settings"))["revision"]
        answer = await core.ask("settings_change", changes=routes["changes"], revision=revision)
        assert answer["faults"][0]["key"] == "route_maps.routes"
        assert "line 1: " in answer["faults"][0]["reason"]


async def test_a_dkim_key_made_here_signs_and_is_changed_for_another(tmp_path: Path) -> None:
    async with (
        Lab(["accept:127.0.0.1:0"]) as lab,
        Catcher() as catcher,
        running(tmp_path, lab, author=catcher) as core,
    ):
        selectors = []
        for selector, algorithm in (("2026a", "rsa"), ("2026b", "ed25519")):
            made = await core.ask(
                "kept_make", kind="dkim", domain="sender.example", selector=selector, algorithm=algorithm
            )
            facts = made["facts"]["dkim"]
            assert facts["record_name"] == f"{selector}._domainkey.sender.example"
            assert "".join(facts["strings"]) == facts["record"]
            assert all(len(each) <= 255 for each in facts["strings"])
            await use(core, made["file"], "dkim")
            selectors.append(made["file"])
        again = await core.ask("kept_make", kind="dkim", domain="sender.example", selector="2026a")
        assert again["faults"][0]["key"] == "selector"
        data = b"From: author@sender.example\r\nSubject: x\r\n\r\nHello.\r\n"
        await core.send("kim@sender.example", data=data)
        await core.until_empty()
        assert catcher.caught[-1][2].count(b"DKIM-Signature:") == 2
        found = await core.ask("kept_use", file=selectors[0], remove=True)
        await change(core, found["changes"])
        await core.send("kim@sender.example", data=data)
        await core.until_empty()
        assert catcher.caught[-1][2].count(b"DKIM-Signature:") == 1
        assert b"s=2026b" in catcher.caught[-1][2]
        with pytest.raises(ControlError, match="is used by"):
            await core.ask("kept_remove", file=selectors[1])
        await core.ask("kept_remove", file=selectors[0])


async def test_a_request_made_here_gets_its_certificate_and_the_key_never_left(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        made = await core.ask("kept_make", kind="request", names=["mx.example.org"])
        certificate = AUTHORITY.sign_request(made["request"])
        kept = await core.ask("kept_put", kind="certificate", name="mx", text=certificate + AUTHORITY.pem)
        await use(core, kept["file"], "receiver", "tls_certificate")
        assert await asyncio.to_thread(offered, core) == ("mx.example.org",)
        refused = await core.ask(
            "kept_put", kind="certificate", name="mx", text=AUTHORITY.issue("a.example").certificate
        )
        assert [each["key"] for each in refused["faults"]] == ["key"]
        own = await core.ask("kept_make", kind="certificate", names=["self.example"])
        assert own["facts"]["certificate"]["self_signed"]


async def test_a_key_goes_with_its_certificate_and_a_state_that_needs_it_is_refused_in_words(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:
        first = await put(core, "mx", AUTHORITY.issue("mx.example.org"))
        await use(core, first["file"], "receiver", "tls_certificate")
        state = (await core.ask("settings"))["revision"]
        with pytest.raises(ControlError, match="is used by"):
            await core.ask("kept_remove", file=first["file"])
        second = await put(core, "mx", AUTHORITY.issue("mx.example.org"))
        await use(core, second["file"])
        await core.ask("kept_remove", file=first["file"])
        assert sorted(path.parent.name for path in (core.home / "kept").glob("*/*")) == ["certificate", "key"]
        revision = (await core.ask("settings"))["revision"]
        answer = await core.ask("settings_return", to=state, revision=revision)
        assert {each["key"] for each in answer["faults"]} == {"receiver.tls_certificate", "receiver.tls_key"}
        assert all("is not kept here any more" in each["reason"] for each in answer["faults"])
        assert await asyncio.to_thread(offered, core) == ("mx.example.org",)


async def test_commands_hand_in_and_use_what_the_pages_do(tmp_path: Path) -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab, running(tmp_path, lab) as core:

        async def said(*arguments: str, status: int = 0) -> str:
            done = await asyncio.to_thread(run, core, *arguments)
            assert done.returncode == status, done.stdout + done.stderr
            await core.control.close()
            return done.stdout + done.stderr

        issued = AUTHORITY.issue("mx.example.org")
        chain, key, wrong = tmp_path / "chain.pem", tmp_path / "key.pem", tmp_path / "wrong.pem"
        chain.write_text(issued.certificate + AUTHORITY.pem)
        key.write_text(issued.key)
        wrong.write_text(AUTHORITY.issue("x.example").key)
        add = ("certificate", "add", "mx", str(chain), "--yes", "--why", "a test", "--key")
        assert "key does not belong to the first certificate" in await said(*add, str(wrong), status=2)
        await said(*add, str(key))
        assert await asyncio.to_thread(offered, core) == ("mx.example.org",)
        assert "[receiver] tls_certificate" in await said("certificate", "list")
        (tmp_path / "aliases").write_text("all@example.org kim@example.org\n")
        put_map = ("map", "put", "aliases", str(tmp_path / "aliases"), "--yes", "--in", "rewriting.virtual_alias_maps")
        await said(*put_map)
        file = next(
            each["file"] for each in (await core.insist(lambda: core.ask("kept")))["files"] if each["kind"] == "map"
        )
        assert await said("map", "show", file) == "all@example.org kim@example.org\n"
        made = await said("dkim", "new", "sender.example", "s1")
        assert 's1._domainkey.sender.example. IN TXT ( "v=DKIM1; k=rsa; p=' in made
        await said("dkim", "use", "sender.example", "s1", "--unpublished", "--yes")
        assert "s1._domainkey.sender.example" in await said("dkim", "list")
        await said("kept", "unuse", file, "--yes")
        assert await said("kept", "remove", file) == f"{file} is removed\n"
        assert await said("certificate", "request", "new.example") != ""
