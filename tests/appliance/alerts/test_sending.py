"""Mail and webhooks as a real server gets them, and what becomes of those that it does not take."""

from __future__ import annotations

import asyncio
import email.policy
import hashlib
import hmac
import json
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult

from appliance.alerts import sending
from appliance.alerts.book import Target
from appliance.alerts.models import Alert, Kind, Notice
from appliance.alerts.sending import NotSent, send, subject, targets_of
from mailcore.config.alerts import Alerts
from tests.doctor.sample_host import certificate
from tests.routing.nameserver import name_server
from tests.running.catcher import Catcher

AT = datetime(2027, 1, 1, 12, tzinfo=UTC)
MAIL, HOOK = Target("mail", "on-call@example.org"), Target("webhook")


def notice(number: int = 1, kind: Kind = Kind.OPENED, **given: Any) -> Notice:
    told = {
        "cause": "disk:space:queue", "rule": "disk", "severity": "warning", "summary": "The disk is short.", "link": "/",
        "detail": "2 GB", "began_at": AT, "opened_at": AT, "seen_at": AT, **given,
    }  # fmt: skip
    return Notice(pk=number, kind=kind, alert=Alert(pk=number, **told), made_at=AT)


def parsed(data: bytes) -> EmailMessage:
    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


# -- mail


async def test_a_mail_says_what_and_since_when_and_where_to_look() -> None:
    ended = notice(2, Kind.ENDED, ended_at=AT, summary="Mail waits.")
    async with Catcher() as catcher:
        settings = Alerts(recipients=(MAIL.address,), sender="waypost@example.org", smtp=_address(catcher))
        words = await asyncio.to_thread(send, MAIL, [notice(), ended], settings, AT)
    ((sender, recipients, data),) = catcher.caught
    assert (sender, recipients) == ("waypost@example.org", ["on-call@example.org"])
    message = parsed(data)
    text = message.get_content().replace("\r\n", "\n")
    assert message["Auto-Submitted"] == "auto-generated"
    assert message["Subject"].endswith("warning: The disk is short. (1 more notice)")
    assert "WARNING: The disk is short.\n  since 2027-01-01 12:00:00 UTC\n  2 GB\n  rule disk; see http" in text
    assert "ENDED: Mail waits.\n  since 2027-01-01 12:00:00 UTC, ended 2027-01-01 12:00:00 UTC" in text
    assert words.endswith("250 catcher.example")


def test_a_name_of_another_server_cannot_become_a_header_or_a_line() -> None:
    hostile = "x<y & z\r\nBcc: all@example.org\n\nHello\u202e"
    message = sending.letter("a@example.org", "w@example.org", [notice(summary=hostile, detail=hostile)], AT)
    again = parsed(message.as_bytes())
    assert again["Bcc"] is None
    assert "\\x0d\\x0aBcc: all@example.org" in again["Subject"]
    assert "\nBcc" not in again.get_content()
    assert "x<y & z" in again.get_content(), "it is plain text"
    assert all(len(line) <= 998 for line in message.as_bytes().split(b"\r\n"))


def test_the_same_notices_have_the_same_id_and_others_another() -> None:
    def number(*notices: Notice) -> str:
        return str(sending.letter("a@example.org", "w@example.org", notices, AT)["Message-ID"])

    assert number(notice(1), notice(2)) == number(notice(1), notice(2)) != number(notice(1), notice(3))


def test_a_subject_names_the_critical_one() -> None:
    critical = notice(2, severity="critical", summary="Mail stops.")
    assert "critical: Mail stops. (1 more notice)" in subject([notice(), critical])
    assert subject([Notice(pk=1, kind=Kind.TEST, made_at=AT)]).endswith(": test")


class Talk:
    """A server that says what a test gives it, line for line, and then waits."""

    def __init__(self, *lines: bytes) -> None:
        self.lines = lines
        self.heard: list[bytes] = []

    @contextmanager
    def listening(self) -> Iterator[str]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            thread = threading.Thread(target=self._talk, args=(server,), daemon=True)
            thread.start()
            host, port = server.getsockname()
            yield f"{host}:{port}"

    def _talk(self, server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as reader:
            for line in self.lines:
                connection.sendall(line + b"\r\n")
                self.heard.append(reader.readline())
            reader.read()


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((b"554 go away",), "554 go away"),
        ((b"220 hi", b"250 hi", b"550 not you"), "550 not you"),
        ((b"220 hi", b"250 hi", b"250 ok", b"451 later \x1b[31m"), "451 later \\x1b[31m"),
        ((b"220 hi", b"250 hi", b"250 ok", b"250 ok", b"354 go", b"452 full"), "452 full"),
    ],
)
def test_a_mail_that_is_refused_was_not_sent(lines: tuple[bytes, ...], why: str) -> None:
    with Talk(*lines).listening() as server, pytest.raises(NotSent) as error:
        send(MAIL, [notice()], Alerts(smtp=server), AT)
    assert why in str(error.value)


def test_a_server_that_says_nothing_or_little_is_left_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "CONNECT_S", 0.3)
    with Talk().listening() as server, pytest.raises(NotSent, match="timed out"):
        send(MAIL, [notice()], Alerts(smtp=server), AT)
    monkeypatch.setattr(sending, "TOTAL_S", 0.3)
    monkeypatch.setattr(sending, "CONNECT_S", 60.0)
    with Talk(b"220 hi").listening() as server, pytest.raises(NotSent):  # no time-out of a read ends this
        send(MAIL, [notice()], Alerts(smtp=server), AT)


def test_no_server_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NotSent, match=rf"127.0.0.1:{port}: .*refused"):
        send(MAIL, [notice()], Alerts(smtp=f"127.0.0.1:{port}"), AT)


ZONE = """
example.org. IN MX 10 nowhere.invalid.
example.org. IN MX 20 localhost.
null.example.org. IN MX 0 .
"""


async def test_without_a_server_the_mail_goes_to_the_mx_of_the_recipient(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with name_server(tmp_path, {"org": ZONE}) as server:
        deliverer = replace(settings.WAYPOST.deliverer, nameservers=(server.text,))
        settings.WAYPOST = replace(settings.WAYPOST, deliverer=deliverer)
        async with Catcher() as catcher:
            monkeypatch.setattr(sending, "SMTP_PORT", int(_address(catcher).rpartition(":")[2]))
            words = await asyncio.to_thread(send, MAIL, [notice()], Alerts(), AT)
        assert words.startswith("localhost: 250")
        assert [recipients for _, recipients, _ in catcher.caught] == [[MAIL.address]]
        for domain, why in (("null.example.org", "null MX"), ("gone.org", "does not exist")):
            with pytest.raises(NotSent, match=why):
                send(Target("mail", f"a@{domain}"), [notice()], Alerts(), AT)


async def test_this_waypost_is_not_asked_to_send_what_is_about_itself(settings: Any) -> None:
    async with Catcher() as catcher:
        receiver = replace(settings.WAYPOST.receiver, listen=(f"0.0.0.0:{_address(catcher).rpartition(':')[2]}",))
        settings.WAYPOST = replace(settings.WAYPOST, receiver=receiver)
        with pytest.raises(NotSent, match="is this Waypost"):
            await asyncio.to_thread(send, MAIL, [notice()], Alerts(smtp=_address(catcher)), AT)
    assert catcher.caught == []


async def test_tls_that_is_demanded_is_not_left_out() -> None:
    async with Catcher() as catcher:
        settings = Alerts(smtp=_address(catcher), smtp_tls="verify")
        with pytest.raises(NotSent, match="offers no STARTTLS"):
            await asyncio.to_thread(send, MAIL, [notice()], settings, AT)
    assert catcher.caught == []


class Signed:
    """Lets in who knows the password, and keeps what it is given."""

    def __init__(self) -> None:
        self.logins: list[tuple[bytes, bytes]] = []
        self.mails: list[str] = []

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"a password", handled=False)

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails += envelope.rcpt_tos
        return "250 ok"


@pytest.mark.parametrize("tls", ["verify", "implicit"])
async def test_a_login_is_made_over_tls_with_a_server_that_proves_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: str
) -> None:
    pem = certificate(tmp_path, "localhost", 5)
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(pem)
    signed = Signed()

    def session() -> SMTP:
        named: dict[str, Any] = {"authenticator": signed.authenticate, "auth_required": True, "hostname": "localhost"}
        if tls == "implicit":
            with warnings.catch_warnings(action="ignore"):  # it does not know that this connection is safe
                return SMTP(signed, auth_require_tls=False, **named)
        return SMTP(signed, tls_context=served, **named)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(session, "127.0.0.1", 0, ssl=served if tls == "implicit" else None)
    password = tmp_path / "password"
    password.write_text("a password\n")
    port = server.sockets[0].getsockname()[1]
    settings = Alerts(smtp=f"localhost:{port}", smtp_tls=tls, smtp_user="waypost", smtp_password_file=str(password))
    try:
        with pytest.raises(NotSent, match="certificate verify failed"):
            await asyncio.to_thread(send, MAIL, [notice()], settings, AT)
        assert signed.logins == []
        monkeypatch.setattr(sending, "_context", lambda _: ssl.create_default_context(cafile=str(pem)))
        assert "250 ok" in await asyncio.to_thread(send, MAIL, [notice()], settings, AT)
        assert (signed.logins[-1], signed.mails) == ((b"waypost", b"a password"), [MAIL.address])
        password.write_text("another\n")
        with pytest.raises(NotSent, match="535") as error:
            await asyncio.to_thread(send, MAIL, [notice()], settings, AT)
        assert "another" not in str(error.value)
    finally:
        server.close()


def _address(catcher: Catcher) -> str:
    return catcher.route.partition(":")[2].replace("[", "").replace("]", "")


def test_where_notices_go() -> None:
    settings = Alerts(recipients=("a@example.org", "b@example.org", "a@example.org"), webhook="https://example.org/x")
    assert targets_of(settings) == [Target("mail", "a@example.org"), Target("mail", "b@example.org"), HOOK]
    assert targets_of(Alerts()) == []


# -- webhook


class Hook:
    """A web server that keeps what it gets."""

    def __init__(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.got.append((self.path, dict(self.headers), body))
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"thanks\x1b")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?token=1"

    def __enter__(self) -> Hook:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_a_webhook_is_json_that_a_receiver_can_verify(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret\n")
    with Hook() as hook:
        settings = Alerts(webhook=hook.url, webhook_secret_file=str(secret))
        assert send(HOOK, [notice(7)], settings, AT) == "200 OK thanks\\x1b"
    ((path, headers, body),) = hook.got
    assert path == "/hook?token=1"
    signed = headers["X-Waypost-Timestamp"].encode() + b"." + body
    assert headers["X-Waypost-Signature"] == "sha256=" + hmac.new(b"a secret", signed, hashlib.sha256).hexdigest()
    (told,) = json.loads(body)["notices"]
    assert (told["id"], told["kind"], told["alert"]["cause"]) == (7, "opened", "disk:space:queue")
    assert (told["alert"]["opened_at"], told["alert"]["ended_at"]) == (AT.timestamp(), None)
    assert told["alert"]["url"].endswith("/")


def test_a_webhook_without_a_secret_is_not_signed_and_an_empty_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with Hook() as hook:
        send(HOOK, [notice()], Alerts(webhook=hook.url), AT)
        assert "X-Waypost-Signature" not in hook.got[0][1]
        for file, why in (("empty", "is empty"), ("missing", "No such file")):
            settings = Alerts(webhook=hook.url, webhook_secret_file=str(tmp_path / file))
            with pytest.raises(NotSent, match=why):
                send(HOOK, [notice()], settings, AT)
    assert len(hook.got) == 1


@pytest.mark.parametrize("status", [301, 404, 500])
def test_an_answer_other_than_2xx_is_a_failure_and_no_redirection_is_followed(status: int) -> None:
    with Hook() as other, Hook(status, {"Location": other.url}) as hook:
        with pytest.raises(NotSent, match=str(status)):
            send(HOOK, [notice()], Alerts(webhook=hook.url), AT)
        assert other.got == []


def test_a_webhook_that_does_not_answer_is_left_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "TOTAL_S", 0.3)
    waiting: Callable[[], Any] = Talk().listening
    with waiting() as server, pytest.raises(NotSent):
        send(HOOK, [notice()], Alerts(webhook=f"http://{server}/"), AT)
