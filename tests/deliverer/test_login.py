"""Logging in to a next hop: over real sockets, with a file of logins, against a server that checks them."""

from __future__ import annotations

import base64
import os
import ssl
from pathlib import Path
from typing import Any

import pytest

from mailcore.config.client_auth import ClientAuth, Login, LoginFileError, parse_logins, read_secret
from mailcore.config.settings import TlsPolicy
from mailcore.deliverer.login import LoginFile
from mailcore.frames import NextHop
from mailcore.tls.policy import Policies
from tests.deliverer.authority import Authority
from tests.deliverer.delivery import Sender, outcomes, words
from tests.deliverer.scripted_server import Answer, ScriptedServer, serving

DELIVERED = [("delivered", "2.0.0")]
OFFERED = ("PIPELINING", "STARTTLS")
SECRET = "pass:word with ä"
USERS = {"joe": SECRET, "ann": "other", "bot": "token-1"}


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    return Authority(tmp_path).issue("example.org").server(tmp_path)


def passwords(directory: Path, text: str = f"example.org joe:{SECRET}\n") -> Path:
    file = directory / "passwords"
    file.write_text("# logins\n\n" + text)
    file.chmod(0o600)
    return file


def server(tls: ssl.SSLContext, offered: str = "PLAIN LOGIN", **changes: object) -> ScriptedServer:
    auth = (f"AUTH {offered}",) if offered else ()
    return ScriptedServer(keywords=OFFERED, keywords_in_tls=(*OFFERED, *auth), tls=tls, users=USERS, **changes)  # type: ignore[arg-type]


def sender_to(directory: Path, port: int, file: Path, **changes: object) -> Sender:
    """One that looks at no certificate, unless ``changes`` say so."""
    given: dict[str, Any] = {"password_file": str(file), "without_verification": True, **changes}
    return Sender(directory, port, auth=ClientAuth(**given))


@pytest.mark.parametrize(
    ("offered", "mechanism"), [("PLAIN LOGIN", "PLAIN"), ("LOGIN", "LOGIN"), ("CRAM-MD5 login plain", "PLAIN")]
)
async def test_mail_goes_to_a_next_hop_with_its_login(
    tmp_path: Path, tls: ssl.SSLContext, offered: str, mechanism: str
) -> None:
    async with serving(server(tls, offered)) as hop:
        result = await sender_to(tmp_path, hop.port, passwords(tmp_path)).send()
        assert (outcomes(result), hop.sessions[0].user) == (DELIVERED, "joe")
        (line,) = [line for line in hop.sessions[0].lines if line.startswith("AUTH ")]
        assert line.split()[1] == mechanism
        assert hop.sessions[0].verbs.index("AUTH") > hop.sessions[0].verbs.index("STARTTLS")


async def test_no_login_goes_to_a_next_hop_without_a_line(tmp_path: Path, tls: ssl.SSLContext) -> None:
    """Also not that of the sender: the server of a stranger offers AUTH and waits for it."""
    file = passwords(tmp_path, f"smarthost.test joe:{SECRET}\nfrom@example.net ann:other\n")
    async with serving(server(tls)) as hop:
        assert outcomes(await sender_to(tmp_path, hop.port, file).send()) == DELIVERED
        assert "AUTH" not in hop.sessions[0].verbs


async def test_a_sender_with_a_line_has_a_login_and_a_connection_of_its_own(
    tmp_path: Path, tls: ssl.SSLContext
) -> None:
    """A connection of another user would send Ann's mail as Joe's."""
    file = passwords(tmp_path, f"example.org joe:{SECRET}\nAnn@Example.net ann:other\n")
    async with serving(server(tls)) as hop:
        sender = sender_to(tmp_path, hop.port, file)
        for address in ("ann@example.net", "joe@example.net", "ann@example.net", "joe@example.net"):
            assert outcomes(await sender.send(sender=address)) == DELIVERED
        users = [(session.user, session.verbs.count("MAIL")) for session in hop.sessions]
        assert users == [("ann", 2), ("joe", 2)]


async def test_another_next_hop_at_the_same_address_does_not_use_the_login(tmp_path: Path, tls: ssl.SSLContext) -> None:
    async with serving(server(tls)) as hop:
        sender = sender_to(tmp_path, hop.port, passwords(tmp_path))
        assert outcomes(await sender.send()) == DELIVERED
        assert outcomes(await sender.send(host="other.test")) == DELIVERED
        assert [session.user for session in hop.sessions] == ["joe", ""]


@pytest.mark.parametrize(
    ("keywords", "level", "reason"),
    [
        (("PIPELINING", "AUTH PLAIN"), "may", "not sent over a connection in the clear"),
        (("PIPELINING", "AUTH PLAIN"), "none", "not sent over a connection in the clear"),
        (("PIPELINING", "STARTTLS", "AUTH PLAIN"), "may", "it offers no AUTH"),  # but only in the clear
    ],
)
async def test_a_server_that_offers_auth_only_in_the_clear_gets_no_password(
    tmp_path: Path, tls: ssl.SSLContext, keywords: tuple[str, ...], level: str, reason: str
) -> None:
    in_tls = tuple(each for each in keywords if not each.startswith("AUTH"))
    hop = ScriptedServer(keywords=keywords, keywords_in_tls=in_tls, tls=tls, users=USERS)
    async with serving(hop):
        result = await sender_to(tmp_path, hop.port, passwords(tmp_path)).send(tls=level)
        assert outcomes(result)[0][0] == "deferred"
        assert reason in words(result)
        assert all(verb not in session.verbs for session in hop.sessions for verb in ("AUTH", "MAIL"))
    async with serving(ScriptedServer(keywords=("AUTH PLAIN",), users=USERS)) as hop:
        sender = sender_to(tmp_path, hop.port, passwords(tmp_path), without_tls=True)
        assert (outcomes(await sender.send()), hop.sessions[0].user) == (DELIVERED, "joe")


@pytest.mark.parametrize("level", ["may", "encrypt"])
async def test_a_server_whose_certificate_is_not_checked_gets_no_password(
    tmp_path: Path, tls: ssl.SSLContext, level: str
) -> None:
    """Any server that answers in its place has a certificate that it has signed itself."""
    async with serving(server(tls)) as hop:
        sender = sender_to(tmp_path, hop.port, passwords(tmp_path), without_verification=False)
        result = await sender.send(tls=level)
        assert outcomes(result) == [("deferred", "4.7.11")]
        assert words(result) == (
            "host mx.example.org[127.0.0.1] needs a login, which is not sent without a checked certificate "
            f"(TLS level: {level})"
        )
        assert all(verb not in session.verbs for session in hop.sessions for verb in ("AUTH", "MAIL"))


async def test_a_server_whose_certificate_is_checked_gets_the_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    policies = Policies({"example.org": TlsPolicy(level="verify")}, 25, str(authority.file))
    async with serving(server(authority.issue("example.org").server(tmp_path))) as hop:
        auth = ClientAuth(password_file=str(passwords(tmp_path)))
        sender = Sender(tmp_path, hop.port, policies=policies, auth=auth)
        assert (outcomes(await sender.send()), hop.sessions[0].user) == (DELIVERED, "joe")


async def test_a_wrong_password_defers_with_the_words_and_without_the_password(
    tmp_path: Path, tls: ssl.SSLContext
) -> None:
    """The server repeats what it got, in both forms; the words are logged, recorded and returned to the sender."""
    for mechanism in ("PLAIN", "LOGIN"):
        async with serving(server(tls, mechanism)) as hop:
            wrong = "not:it"
            result = await sender_to(tmp_path, hop.port, passwords(tmp_path, f"example.org joe:{wrong}")).send()
            assert outcomes(result) == [("deferred", "4.7.8")]
            found = words(result)
            assert "SASL authentication failed; server mx.example.org[127.0.0.1] said: 535 5.7.8 Error" in found
            encoded = [base64.b64encode(each.encode()).decode() for each in (wrong, f"\0joe\0{wrong}")]
            assert all(secret not in repr(result) for secret in (wrong, *encoded))
            assert (len(hop.sessions), hop.messages, result.site_failure) == (1, [], True)


@pytest.mark.parametrize(
    ("answer", "dsn"),
    [
        (b"454 4.7.0 later\r\n", "4.7.8"),
        (b"334 bW9yZQ==\r\n", "4.7.8"),
        (b"504 5.5.4 no\r\n", "4.7.8"),
        (b"221 bye\r\n", ""),
    ],
)
async def test_a_server_that_answers_auth_in_another_way(
    tmp_path: Path, tls: ssl.SSLContext, answer: Answer, dsn: str
) -> None:
    async with serving(server(tls, answers={"AUTH": answer, "*": b"501 5.7.0 cancelled\r\n"})) as hop:
        result = await sender_to(tmp_path, hop.port, passwords(tmp_path)).send()
        assert outcomes(result) == [("deferred", dsn)] if dsn else True
        assert not hop.messages or not dsn


async def test_a_server_without_a_mechanism_that_fits(tmp_path: Path, tls: ssl.SSLContext) -> None:
    async with serving(server(tls, "GSSAPI XOAUTH2")) as hop:
        result = await sender_to(tmp_path, hop.port, passwords(tmp_path)).send()
        assert outcomes(result) == [("deferred", "4.7.0")]
        assert "offers no mechanism that fits the login: GSSAPI, XOAUTH2" in words(result)


async def test_a_token_is_read_again_when_its_file_changes(tmp_path: Path, tls: ssl.SSLContext) -> None:
    token = tmp_path / "token"
    token.write_text("token-0\n")
    token.chmod(0o600)
    file = passwords(tmp_path, "example.org xoauth2 bot token\n")
    async with serving(server(tls, "PLAIN XOAUTH2")) as hop:
        sender = sender_to(tmp_path, hop.port, file)
        result = await sender.send()
        assert outcomes(result) == [("deferred", "4.7.8")]
        assert "token-0" not in words(result)
        token.write_text("token-1\n")
        assert (outcomes(await sender.send()), hop.sessions[-1].user) == (DELIVERED, "bot")
        token.chmod(0o604)
        sender = sender_to(tmp_path, hop.port, file)
        result = await sender.send()
        assert (outcomes(result), "every user of this host" in words(result)) == ([("deferred", "4.3.5")], True)
        assert not result.site_failure
        assert not result.transport_failure  # the file of another next hop may be right


async def test_a_file_that_cannot_be_used_defers_all_mail_and_is_read_again(
    tmp_path: Path, tls: ssl.SSLContext
) -> None:
    """Which next hop needs a login is not known then, and without one a smarthost refuses the mail for good."""
    file = passwords(tmp_path)
    file.chmod(0o644)
    async with serving(server(tls)) as hop:
        sender = sender_to(tmp_path, hop.port, file)
        now = 0.0
        sender.client._logins = LoginFile(str(file), 25, lambda: now)
        result = await sender.send(host="other.test")
        assert (outcomes(result), result.transport_failure, hop.sessions) == ([("deferred", "4.3.5")], True, [])
        assert "has mode 0644, so every user of this host can open it" in words(result)
        file.chmod(0o600)
        now = 1.0
        assert (outcomes(await sender.send()), hop.sessions[0].user) == (DELIVERED, "joe")
        file.unlink()
        now = 2.0
        assert outcomes(await sender.send()) == [("deferred", "4.3.5")]


def test_a_changed_password_is_in_force_after_a_second(tmp_path: Path) -> None:
    now = 0.0
    logins = LoginFile(str(passwords(tmp_path)), 25, lambda: now)
    hop = NextHop("example.org", 25, True)
    assert logins.of(hop, "") == Login("joe", SECRET)
    passwords(tmp_path, "example.org joe:new\n")
    now = 1.0
    assert logins.of(hop, "") == Login("joe", "new")
    assert logins.of(NextHop("other.test", 25, True), "") is None


def test_the_most_specific_line_of_a_next_hop_counts() -> None:
    logins = parse_logins("[a.test] one:1\n[a.test]:587 two:2\nb.test:25 three:3\nb.test:26 four:4\n", "f", 25)
    found = {name: login.user for name, login in logins.by_hop.items()}
    assert found == {"[a.test]": "one", "[a.test]:587": "two", "b.test": "three", "b.test:26": "four"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("example.org", "f:1: must be NEXT_HOP USER:PASSWORD"),
        ("example.org joe", "f:1: must be USER:PASSWORD"),
        ("example.org :hunter2", "f:1: must be USER:PASSWORD"),
        ("example.org joe:", "f:1: must be USER:PASSWORD"),
        (".example.org joe:hunter2", "f:1: must begin with a next hop"),
        ("hunter2:hunter2:x joe:hunter2", "f:1: must begin with a next hop"),
        ("example.org a:hunter2\nExample.org b:hunter2", "f:2: must not have example.org twice"),
        ("example.org xoauth2 joe", "f:1: must be xoauth2 USER FILE"),
        ("example.org joe:" + "hunter2" * 2_000, "f:1: must be NEXT_HOP"),
    ],
)
def test_a_wrong_line_is_named_and_not_shown(line: str, reason: str) -> None:
    with pytest.raises(LoginFileError) as error:
        parse_logins(line, "f", 25)
    assert reason in str(error.value)
    assert "hunter2" not in str(error.value)


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = passwords(tmp_path)
    for mode in (0o604, 0o602, 0o644, 0o601):
        file.chmod(mode)
        with pytest.raises(LoginFileError, match="every user of this host"):
            read_secret(str(file), None)
    for mode in (0o640, 0o660):
        file.chmod(mode)
        assert read_secret(str(file), os.getegid())
        with pytest.raises(LoginFileError, match="its group is not that of the deliverers"):
            read_secret(str(file), os.getegid() + 1)
    with pytest.raises(LoginFileError, match="is not a file"):
        read_secret("/dev/null", None)
    with pytest.raises(LoginFileError, match="No such file"):
        read_secret(str(tmp_path / "missing"), None)


def test_a_login_has_no_secret_in_its_text() -> None:
    assert f"{Login('joe', 'hunter2')} {Login('joe', 'hunter2')!r} {(Login('joe', 'hunter2'),)}".count("hunter2") == 0
