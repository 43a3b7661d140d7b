"""The page docs/submission.md, typed and run: listeners, users and certificates of a real core with two receivers."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import shlex
import smtplib
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography import x509

from mailcore.cli.main import main
from tests.doctor.sample_host import certificate
from tests.end_to_end.appliance import Appliance, free_port
from tests.receiver.server_in_process import any_certificate
from tests.test_docs import commands_of
from tests.test_tidy import ROOT

T = TypeVar("T")
PAGE = "docs/submission.md"
PASSWORD = "correct horse battery"
TOML = re.compile(r"```toml\n(.*?)```", re.DOTALL)
NAME = "mail.example.org"
MESSAGE = "Subject: x\r\n\r\nx\r\n"


class Place(Appliance):
    """The page's settings, with ports and files of this test."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {"*": f"smtp:[127.0.0.1]:{free_port()}"}, {"receiver": {"processes": 2}})
        self.implicit, self.required = free_port(), free_port()
        self.pem = certificate(directory, NAME, 90)
        self.other = certificate(directory, "smtp.example.net", 90)
        first, second = TOML.findall((ROOT / PAGE).read_text())
        settings, _, listeners = first.partition("[[listener]]")
        text = self.config.read_text().replace("[receiver]\n", settings)
        text = re.sub(r"^listen = .*\n", "", text, flags=re.MULTILINE) + "[[listener]]" + listeners + second
        for old, new in (
            ("0.0.0.0:25", f"127.0.0.1:{self.port}"),
            ("0.0.0.0:465", f"127.0.0.1:{self.implicit}"),
            ("0.0.0.0:587", f"127.0.0.1:{self.required}"),
            ("/etc/waypost/tls/certificate.pem", str(self.pem)),
            ("/etc/waypost/tls/key.pem", str(self.pem)),
            ("/etc/waypost/tls/example.net.pem", str(self.other)),
            ("/etc/waypost/tls/example.net.key", str(self.other)),
        ):
            assert old in text
            text = text.replace(old, new)
        self.config.write_text(text)

    def type(self, *words: str) -> int:
        """Types a command with a password on stdin."""
        if words[1:2] in (("add",), ("password",)):
            words = (*words, "--password-stdin")
        before = sys.stdin
        sys.stdin = io.TextIOWrapper(io.BytesIO(f"{PASSWORD}\n".encode()))
        try:
            return main([*words, "--config", str(self.config)])
        finally:
            sys.stdin = before

    def logged(self, words: str) -> int:
        return (self.home / "log" / "mail.log").read_text().count(words)

    async def changed(self, *words: str) -> None:
        """Types a change of a user and waits until both receivers have read it."""
        before = self.logged("users.jsonl: ")
        assert self.type(*words) == 0
        await self.until(lambda: self.logged("users.jsonl: ") >= before + 2, "both receivers")

    def send(self, user: str, sender: str, count: int = 1, sessions: int = 1) -> list[int]:
        """Logs in over port 465 and sends; the codes of MAIL."""
        codes = []
        for _ in range(sessions):
            with smtplib.SMTP_SSL("127.0.0.1", self.implicit, context=any_certificate(), timeout=30) as client:
                client.login(user, PASSWORD)
                for _ in range(count):
                    code = client.mail(sender)[0]
                    codes.append(code)
                    if code == 250:
                        client.rcpt("b@other.example")
                        assert client.data(MESSAGE)[0] == 250
                    client.rset()
        return codes

    def served(self, name: str) -> x509.Certificate:
        context = any_certificate()
        with (
            socket.create_connection(("127.0.0.1", self.implicit), 30) as plain,
            context.wrap_socket(plain, server_hostname=name) as secured,
        ):
            return x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    return await asyncio.to_thread(function, *arguments)


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(tmp_path)
    place.home.mkdir()
    commands = [words for words in commands_of(PAGE) if words[0] == "user"]
    assert [words[1] for words in commands] == ["add", "add", "list", "set", "password", "disable", "enable", "remove"]
    for words in commands:
        assert place.type(*words) == 0, shlex.join(words)
    output = capsys.readouterr()
    assert PASSWORD not in output.out + output.err
    good = {pem: pem.read_bytes() for pem in (place.pem, place.other)}
    for pem in good:
        pem.write_bytes(b"")  # the first start has no certificate
    try:
        place.launch()
        await place.until(place._greets, "the greeting")
        with smtplib.SMTP("127.0.0.1", place.required, timeout=30) as client:
            assert client.docmd("STARTTLS")[0] == 454
            client.ehlo()
            assert client.mail("a@example.org")[0] == 530
        with pytest.raises((OSError, smtplib.SMTPException)):
            await in_thread(place.send, "alice@example.org", "alice@example.org")
        for pem, content in good.items():
            pem.write_bytes(content)

        async def used() -> bool:
            with contextlib.suppress(OSError):
                return all([await in_thread(place.served, NAME) for _ in range(6)])  # of both receivers
            return False

        await place.until(used, "the certificate")
        await place.ready()

        # A user sends with its own address only, and the log, the queue and Received name it.
        assert await in_thread(place.send, "alice@example.org", "alice@example.org") == [250]
        assert await in_thread(place.send, "alice@example.org", "b@example.org") == [553]
        rows, _ = await place.ask_list("queue", "list")
        details = await place.ask("queue", "show", str(rows[0]["queue_id"]))
        assert details["envelope"]["login"] == "alice@example.org"
        log = (place.home / "log" / "mail.log").read_text()
        assert ", sasl_method=PLAIN, sasl_username=alice@example.org" in log
        assert PASSWORD not in log

        # Two receivers count together: each session may be with either.
        await place.changed("user", "set", "alice@example.org", "--messages-per-hour", "6")
        codes = await in_thread(place.send, "alice@example.org", "alice@example.org", 1, 12)
        assert codes == [250] * 5 + [450] * 7
        await place.kill("receiver.0")
        assert await in_thread(place.send, "alice@example.org", "alice@example.org", 1, 4) == [450] * 4

        # A user who is disabled sends nothing more in an open session.
        await place.changed("user", "set", "alice@example.org", "--messages-per-hour", "0")
        with smtplib.SMTP("127.0.0.1", place.required, timeout=30) as client:
            client.starttls(context=any_certificate())
            client.login("alice@example.org", PASSWORD)
            assert client.mail("alice@example.org")[0] == 250
            client.rset()
            await place.changed("user", "disable", "alice@example.org")
            assert client.mail("alice@example.org")[0] == 421
        with pytest.raises(smtplib.SMTPAuthenticationError):
            await in_thread(place.send, "alice@example.org", "alice@example.org")

        # Certificates: by name, renewed without a restart, and a bad one changes nothing.
        first = await in_thread(place.served, NAME)
        assert await in_thread(place.served, "smtp.example.net") == x509.load_pem_x509_certificate(
            place.other.read_bytes()
        )
        renewed = certificate(tmp_path, NAME, 80)
        expected = x509.load_pem_x509_certificate(renewed.read_bytes())

        async def is_renewed() -> bool:
            return {await in_thread(place.served, NAME) for _ in range(4)} == {expected} != {first}

        await place.until(is_renewed, "the renewed certificate")
        place.pem.write_bytes(b"cut off")
        await place.until(lambda: place.logged("the one before stays in use") >= 2, "the warning of both receivers")
        assert await in_thread(place.served, NAME) == expected
        capsys.readouterr()
        assert place.type("status") == 0
        assert "receivers do not use it" in capsys.readouterr().err
    finally:
        place.stop()
