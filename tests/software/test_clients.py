"""Small clients that are not ours, over STARTTLS and with a login: swaks, msmtp, nullmailer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.deliverer.authority import Authority
from tests.deliverer.scripted_server import ScriptedServer, serving
from tests.end_to_end.appliance import free_port
from tests.receiver.logins import PASSWORD, user, write_users
from tests.running.running_core import RunningCore
from tests.software.core import core_with, exact
from tests.software.programs import program, run, unpacked

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]  # ./test --long names the packages

TEXT = "From: a@sender.example\nTo: b@example.org\nSubject: Gruß\n\nHällo.\n.a dot\n..two\n".encode()
MESSAGE = TEXT.replace(b"\n", b"\r\n")


class Place:
    """A core with a submission port for alice, and the server behind it."""

    def __init__(self, core: RunningCore, hop: ScriptedServer, authority: Authority, port: int) -> None:
        self.core = core
        self.hop = hop
        self.ca_file = str(authority.file)
        self.port = port

    async def arrived(self) -> dict[str, object]:
        """Waits until the message is at the next hop, byte for byte; returns the log's record of its arrival."""
        await self.core.until_empty()
        (message,) = self.hop.messages
        assert message.sender.split()[0] == "<a@sender.example>"
        assert message.recipients == ["<b@example.org>"]
        assert exact(message.data, MESSAGE), message.data
        (accepted,) = [line for line in self.core.log() if line["event"] == "accepted"]
        return accepted


@contextlib.asynccontextmanager
async def submission(directory: Path, *, scram: bool = False) -> AsyncIterator[Place]:
    authority = Authority(directory)
    port = free_port()
    (directory / "home").mkdir()
    write_users(directory / "home" / "users.jsonl", [user(scram=scram)])
    async with serving(ScriptedServer()) as hop:
        listener = {"address": f"127.0.0.1:{port}", "purpose": "submission", "tls": "required", "auth": "required"}
        async with core_with(directory, hop.port, authority, listeners=[listener]) as core:
            yield Place(core, hop, authority, port)


def perl_with_tls(directory: Path) -> dict[str, str]:
    """The environment in which swaks finds the module that it needs for TLS."""
    (found,) = unpacked(directory, "libnet-ssleay-perl").glob("usr/lib/*/perl5/*")
    return {"PERL5LIB": str(found)}


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
async def test_swaks_submits(tmp_path: Path, mechanism: str) -> None:
    async with submission(tmp_path) as place:
        said = await run(
            program("swaks"), "--server", "127.0.0.1", "--port", str(place.port), "--tls", "--tls-verify",
            "--tls-ca-path", place.ca_file, "--tls-sni", "mx.waypost.test", "--auth", mechanism, "--auth-user", "alice",
            "--auth-password", PASSWORD, "--from", "a@sender.example", "--to", "b@example.org", "--data", "-",
            stdin=TEXT[:-1], environment=perl_with_tls(tmp_path),
        )  # fmt: skip
        assert "=== TLS started with cipher TLSv1.3" in said
        assert "<~  235 2.7.0" in said
        accepted = await place.arrived()
    assert (accepted["login"], accepted["login_method"]) == ("alice", mechanism)


async def test_swaks_without_tls_is_refused(tmp_path: Path) -> None:
    async with submission(tmp_path) as place:
        said = await run(
            program("swaks"), "--server", "127.0.0.1", "--port", str(place.port), "--from", "a@sender.example",
            "--to", "b@example.org", code=None,
        )  # fmt: skip
        assert "530 5.7.0 Must issue a STARTTLS command first" in said
        assert not place.hop.messages


async def test_swaks_pipelines(tmp_path: Path) -> None:
    """With pipelining, to the port for other servers."""
    async with submission(tmp_path) as place:
        await run(
            program("swaks"), "--server", "127.0.0.1", "--port", str(place.core.port), "--pipeline", "--from",
            "a@sender.example", "--to", "b@example.org", "--data", "-", stdin=TEXT[:-1],
        )  # fmt: skip
        await place.arrived()


@pytest.mark.parametrize("mechanism", ["plain", "login", "scram-sha-256"])
async def test_msmtp_submits(tmp_path: Path, mechanism: str) -> None:
    async with submission(tmp_path, scram=mechanism == "scram-sha-256") as place:
        await run(
            program("msmtp"), "--file=/dev/null", "--host=localhost", f"--port={place.port}", "--tls=on", "--tls-starttls=on",
            f"--tls-trust-file={place.ca_file}", "--tls-host-override=mx.waypost.test", f"--auth={mechanism}", "--user=alice",
            "--passwordeval=printenv WP_PASSWORD", "--from=a@sender.example", "b@example.org", stdin=TEXT,
            environment={"WP_PASSWORD": PASSWORD},
        )  # fmt: skip
        accepted = await place.arrived()
    assert (accepted["login"], accepted["login_method"]) == ("alice", mechanism.upper())


async def test_msmtp_trusts_no_other_certificate(tmp_path: Path) -> None:
    async with submission(tmp_path) as place:
        said = await run(
            program("msmtp"), "--file=/dev/null", "--host=localhost", f"--port={place.port}", "--tls=on", "--tls-starttls=on",
            f"--tls-trust-file={place.ca_file}", "--tls-host-override=other.example", "--auth=plain", "--user=alice",
            "--passwordeval=printenv WP_PASSWORD", "--from=a@sender.example", "b@example.org", stdin=TEXT,
            environment={"WP_PASSWORD": PASSWORD}, code=None,
        )  # fmt: skip
        assert "certificate" in said
        assert not place.hop.messages


async def test_nullmailer_submits(tmp_path: Path) -> None:
    """Its protocol module, as nullmailer-send starts it: options from standard input, the message from descriptor 3."""
    nullmailer = unpacked(tmp_path, "nullmailer") / "usr" / "lib" / "nullmailer" / "smtp"
    async with submission(tmp_path) as place:
        options = (
            f"host=localhost\nport={place.port}\nstarttls\nauth-login\nuser=alice\npass={PASSWORD}\n"
            f"x509cafile={place.ca_file}\n\n"
        )
        queued = tmp_path / "queued"
        queued.write_bytes(b"a@sender.example\nb@example.org\n\n" + TEXT)
        (tmp_path / "options").write_text(options)
        command = f'exec {nullmailer} < "{tmp_path / "options"}" 3< "{queued}"'
        await run("/bin/sh", "-c", command, environment={"HELOHOST": "client.example"})
        accepted = await place.arrived()
    assert (accepted["login"], accepted["login_method"]) == ("alice", "LOGIN")
