"""Mail of our own domains leaves signed; another program verifies each signature over what arrived."""

from __future__ import annotations

import asyncio
import smtplib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import dkim

from mailcore.dkim.key import SigningKey, new_key
from tests.doctor.sample_host import certificate
from tests.end_to_end.appliance import free_port
from tests.eventually import PATIENCE_S, eventually
from tests.receiver.logins import PASSWORD, user, write_users
from tests.receiver.server_in_process import any_certificate
from tests.running.catcher import Catcher
from tests.running.running_core import RunningCore, Sections

HEADER = b"From: Alice <alice@example.org>\r\nTo: bob@elsewhere.example\r\nSubject: An offer\r\n"
SMALL = HEADER + b"\r\nHello.\r\n.a line with a dot \r\n..two\r\n\r\n\r\n"
# Beyond inline_limit, so in a spool file and in several blocks; a header beyond one block; dots at the blocks' borders.
LARGE = HEADER + b"X-Long: " + b"\r\n ".join([b"x" * 900] * 90) + b"\r\n\r\n" + b".\r\n.dot\r\n \r\n" * 30_000
OTHER = SMALL.replace(b"example.org", b"example.com")
FORGED = b"From: mallory@example.com\r\n" + SMALL


def key_file(directory: Path, name: str, algorithm: str) -> tuple[Path, SigningKey]:
    key = new_key(algorithm)
    path = directory / name
    path.write_bytes(key.pem)
    path.chmod(0o640)
    return path, key


def section(path: Path, selector: str, domain: str = "example.org") -> str:
    return f'[[dkim]]\ndomain = "{domain}"\nselector = "{selector}"\nkey = "{path}"\n'


def signatures(message: bytes, keys: dict[str, SigningKey]) -> int:
    """How many there are; each must hold."""
    records = {f"{name}._domainkey.example.org.".encode(): key.record.encode() for name, key in keys.items()}
    there = message.partition(b"\r\n\r\n")[0].count(b"DKIM-Signature:")
    for index in range(there):
        assert dkim.DKIM(message).verify(idx=index, dnsfunc=lambda name, timeout=5: records.get(name)), index
    return there


@asynccontextmanager
async def signing(
    directory: Path, catcher: Catcher, keys: str, more: Sections | None = None
) -> AsyncIterator[RunningCore]:
    """A core with these sections [[dkim]], whose next hop is the catcher."""
    core = RunningCore(directory, {"*": catcher.route}, more)
    core.config.write_text(core.config.read_text() + keys)
    await core.start()
    try:
        yield core
    finally:
        await core.control.close()
        core.stop()


async def caught(catcher: Catcher, count: int) -> list[bytes]:
    await eventually(lambda: len(catcher.caught) >= count, f"{count} messages")
    return [data for _, _, data in catcher.caught]


def errors(core: RunningCore) -> list[dict[str, Any]]:
    return [line for line in core.log() if line["event"] == "delivery" and line["status"] != "sent"]


async def test_mail_of_our_domains_leaves_signed_by_each_key(tmp_path: Path) -> None:
    rsa_file, rsa = key_file(tmp_path, "rsa.pem", "rsa")
    ed_file, ed = key_file(tmp_path, "ed.pem", "ed25519")
    keys = {"2026a": rsa, "2026b": ed}
    async with (
        Catcher() as catcher,
        signing(tmp_path, catcher, section(rsa_file, "2026a") + section(ed_file, "2026b")) as core,
    ):
        for data in (SMALL, LARGE, OTHER, FORGED):
            await core.send("bob@elsewhere.example", data=data)
        arrived = await caught(catcher, 4)
        assert sorted(signatures(each, keys) for each in arrived) == [0, 0, 2, 2]
        for data in (SMALL, LARGE, OTHER, FORGED):
            assert any(each.endswith(data) for each in arrived), "something else was changed"
        unsigned = [each for each in arrived if b"DKIM-Signature:" not in each]
        assert all(b"@example.com" in each for each in unsigned)


async def test_mail_that_is_not_ours_is_not_signed(tmp_path: Path) -> None:
    """A server that we relay for as MX sends From: example.org; only our own users and networks may speak for the domain."""
    file, key = key_file(tmp_path, "rsa.pem", "rsa")
    relay = {"relay": {"networks": ["192.0.2.0/24"], "domains": ["example.org"]}}
    async with Catcher() as catcher, signing(tmp_path, catcher, section(file, "2026a"), relay) as core:
        await core.send("bob@example.org", data=SMALL)
        assert [signatures(each, {"2026a": key}) for each in await caught(catcher, 1)] == [0]
        await core.ask("inject_begin", sender="a@example.org", recipients=["bob@example.org"], not_before=None)
        await core.ask("inject_data", data=SMALL)
        await core.ask("inject_end")
        assert [signatures(each, {"2026a": key}) for each in await caught(catcher, 2)] == [0, 1]


async def test_mail_of_a_client_that_the_balancer_cannot_name_is_not_signed(tmp_path: Path) -> None:
    """The balancer is in our own networks, and a client in the same network is signed for."""
    file, key = key_file(tmp_path, "rsa.pem", "rsa")
    port = free_port()
    behind = f'[[listener]]\naddress = "127.0.0.1:{port}"\nproxy = ["127.0.0.1/32"]\n'
    relay = {"relay": {"networks": ["127.0.0.0/8"], "domains": ["example.org"]}}
    async with Catcher() as catcher, signing(tmp_path, catcher, section(file, "2026a") + behind, relay):

        def send(header: bytes) -> None:
            with smtplib.SMTP(timeout=PATIENCE_S) as client:
                client.sock = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
                client.sock.sendall(header)
                assert client.getreply()[0] == 220
                client.sendmail("ceo@example.org", "bob@example.org", SMALL)

        for count, header in enumerate((b"PROXY UNKNOWN\r\n", b"PROXY TCP4 127.0.0.9 127.0.0.1 40001 25\r\n"), 1):
            await asyncio.to_thread(send, header)
            await caught(catcher, count)
        assert [signatures(each, {"2026a": key}) for _, _, each in catcher.caught] == [0, 1]


async def test_a_login_gets_signatures_only_for_domains_of_its_sender_addresses(tmp_path: Path) -> None:
    """Two customers have keys here; neither may speak for the other. A user who may send as anyone may."""
    keys = {domain: key_file(tmp_path, f"{domain}.pem", "ed25519") for domain in ("example.org", "example.net")}
    text = "".join(section(path, "s", domain) for domain, (path, _) in keys.items())
    port, pem = free_port(), certificate(tmp_path, "mail.example.org", 90)
    text += f'[[listener]]\naddress = "127.0.0.1:{port}"\npurpose = "submission"\ntls = "implicit"\n'
    tls = {"receiver": {"tls_certificate": str(pem), "tls_key": str(pem)}}
    (tmp_path / "home").mkdir()
    write_users(
        tmp_path / "home" / "users.jsonl", [user(senders=("example.org",)), user("bob"), user("carol", senders=())]
    )

    def send(login: str, sender: str, author: str) -> None:
        with smtplib.SMTP_SSL("127.0.0.1", port, context=any_certificate(), timeout=PATIENCE_S) as client:
            client.login(login, PASSWORD)
            client.sendmail(sender, "bob@elsewhere.example", f"From: boss@{author}\r\n\r\nx\r\n")

    async with Catcher() as catcher, signing(tmp_path, catcher, text, tls):
        for count, (login, sender, author, expected) in enumerate(
            [
                ("alice", "alice@example.org", "example.org", True),
                ("alice", "alice@example.org", "example.net", False),
                ("alice", "", "example.net", False),
                ("bob", "bob@elsewhere.example", "example.net", True),
                ("carol", "", "example.org", False),
            ],
            1,
        ):
            await asyncio.to_thread(send, login, sender, author)
            arrived = (await caught(catcher, count))[-1]
            assert (f"d={author};".encode() in arrived) is expected, (login, author)
            assert arrived.count(b"DKIM-Signature:") == expected


async def test_a_key_that_is_lost_keeps_mail_back_and_signs_it_when_it_is_there_again(tmp_path: Path) -> None:
    file, key = key_file(tmp_path, "rsa.pem", "rsa")
    async with Catcher() as catcher, signing(tmp_path, catcher, section(file, "2026a")) as core:
        await core.send("bob@elsewhere.example", data=SMALL)
        await caught(catcher, 1)
        pem = file.read_bytes()
        file.write_bytes(b"not a key")
        await core.kill_now("deliverer.0")  # the one that has the key in memory
        await core.send("bob@elsewhere.example", "carol@elsewhere.example", data=SMALL)
        await core.send("bob@elsewhere.example", data=OTHER)
        await caught(catcher, 2)  # mail of another domain goes out
        await eventually(lambda: len(errors(core)) >= 2, "the deferrals")
        assert {line["status"] for line in errors(core)} == {"deferred"}
        assert "DKIM key" in errors(core)[0]["reply"]
        said = core.output.read_text()
        assert str(file) in said, "the log of the process names the file"
        assert '"mail_not_signed"' in said
        assert '"data_unreadable"' not in said, "nothing is wrong with the data"
        assert len(catcher.caught) == 2
        file.write_bytes(pem)
        await core.until_empty()
        arrived = [data for _, _, data in catcher.caught]
        assert sorted(signatures(each, {"2026a": key}) for each in arrived) == [0, 1, 1]


async def test_a_key_that_is_exchanged_signs_without_a_restart(tmp_path: Path) -> None:
    file, _ = key_file(tmp_path, "rsa.pem", "rsa")
    async with Catcher() as catcher, signing(tmp_path, catcher, section(file, "2026a")) as core:
        await core.send("bob@elsewhere.example", data=SMALL)
        await caught(catcher, 1)
        _, new = key_file(tmp_path, "rsa.pem", "ed25519")

        async def signed_by_the_new_one() -> bool:
            count = len(catcher.caught)
            await core.send("bob@elsewhere.example", data=SMALL)
            await caught(catcher, count + 1)
            return b"a=ed25519-sha256" in catcher.caught[-1][2]

        await eventually(signed_by_the_new_one, "the new key")
        assert signatures(catcher.caught[-1][2], {"2026a": new}) == 1
        file.write_bytes(b"not a key")
        await core.send("bob@elsewhere.example", data=SMALL)
        await core.until_empty()
        assert signatures(catcher.caught[-1][2], {"2026a": new}) == 1, "the key before stays in use"
