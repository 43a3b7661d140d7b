"""AUTH: each mechanism, each reply, and each way in which a login could deceive."""

from __future__ import annotations

import asyncio
import base64
import smtplib
import subprocess
import threading
import time
from pathlib import Path

import argon2
import pytest

from mailcore.config.listeners import Listener
from mailcore.users.scram import ScramVerifier
from tests.deliverer.scripted_server import server_tls
from tests.eventually import PATIENCE_S, eventually
from tests.receiver.logins import PASSWORD, SUBMISSION, b64, plain, scram, scram_replies, submission, user
from tests.receiver.server_in_process import Client, any_certificate, serving

LOGGED_IN = b"235 2.7.0 Authentication successful\r\n"
BUSY = b"454 4.7.0 Temporary authentication failure\r\n"
FAILED = b"535 5.7.8 Error: authentication failed\r\n"
MAIL = b"MAIL FROM:<alice@example.org>"


# The mechanisms


async def test_plain_login_and_a_message(tmp_path: Path) -> None:
    async with submission(tmp_path, user()) as server:
        client = await server.client()
        assert (await client.ask(MAIL)) == b"530 5.7.0 Authentication required\r\n"
        assert await client.ask(b"AUTH PLAIN") == b"334 \r\n"
        assert await client.ask(plain("Alice")) == LOGGED_IN
        await client.to_data(b"alice@example.org", b"any@other.example")
        await client.send(b"x\r\n.\r\n")
        assert (await client.reply()).startswith(b"250")
    ((envelope, _, data),) = server.intake.messages
    assert (envelope.login, envelope.login_method) == ("alice", "PLAIN")
    assert b" with ESMTPSA id" in data
    assert PASSWORD.encode() not in data


async def test_login_asks_for_both(tmp_path: Path) -> None:
    async with submission(tmp_path, user()) as server:
        client = await server.client()
        assert await client.ask(b"AUTH LOGIN") == b"334 VXNlcm5hbWU6\r\n"
        assert await client.ask(b64("alice")) == b"334 UGFzc3dvcmQ6\r\n"
        assert await client.ask(b64(PASSWORD)) == LOGGED_IN
        other = await server.client()
        assert await other.ask(b"auth login " + b64("alice")) == b"334 UGFzc3dvcmQ6\r\n"
        assert await other.ask(b64("wrong")) == FAILED
    assert server.log.failures == [("LOGIN", "alice", "wrong password")]


async def test_scram_proves_both_sides(tmp_path: Path) -> None:
    async with submission(tmp_path, user(scram=True)) as server:
        client = await server.client()
        assert await scram(client) == LOGGED_IN
        await client.to_data(b"alice@example.org")
        assert await scram(await server.client(), header="y,,") == LOGGED_IN
        assert await scram(await server.client(), password="wrong") == FAILED
        assert await scram(await server.client(), name="unknown") == FAILED
        assert await (await server.client()).ask(b"AUTH PLAIN " + plain()) == LOGGED_IN
    assert server.log.failures == [
        ("SCRAM-SHA-256", "alice", "wrong password"),
        ("SCRAM-SHA-256", "", "no such user"),
    ]


async def test_channel_bindings_are_refused(tmp_path: Path) -> None:
    async with submission(tmp_path, user(scram=True)) as server:
        client = await server.client()
        assert b"PLUS" not in await client.ask(b"EHLO c")
        assert (await client.ask(b"AUTH SCRAM-SHA-256-PLUS")).startswith(b"504 5.5.4")
        for header in ("p=tls-exporter,,", "p=tls-server-end-point,,"):
            assert await scram(client, header=header) == FAILED
        assert await scram(client, header="n,a=admin,") == FAILED


async def test_scram_is_not_offered_to_users_who_cannot_use_it(tmp_path: Path) -> None:
    async with submission(tmp_path, user("s", scram=True)) as server:
        client = await server.client()
        assert b"AUTH SCRAM-SHA-256 PLAIN LOGIN\r\n" in await client.ask(b"EHLO c")
        await server.changed(user("s", scram=True), user("alice"))
        assert b"AUTH PLAIN LOGIN\r\n" in await client.ask(b"EHLO c")
        assert (await client.ask(b"AUTH SCRAM-SHA-256")).startswith(b"504 5.5.4")


async def test_pythons_smtplib_logs_in(tmp_path: Path) -> None:
    async with submission(tmp_path, user()) as server:

        def send(mechanism: str) -> None:
            with smtplib.SMTP_SSL(*server.server.address, context=any_certificate(), timeout=PATIENCE_S) as client:
                client.ehlo()
                client.user, client.password = "alice", PASSWORD
                client.auth(mechanism, getattr(client, f"auth_{mechanism.lower()}"))
                client.sendmail("alice@example.org", ["b@other.example"], "Subject: x\r\n\r\nx\r\n")
                assert client.login("alice", PASSWORD)[0] == 503  # one login a session

        for mechanism in ("PLAIN", "LOGIN"):
            await asyncio.to_thread(send, mechanism)
    assert [envelope.login_method for envelope, _, _ in server.intake.messages] == ["PLAIN", "LOGIN"]


async def test_curl_logs_in(tmp_path: Path) -> None:
    message = tmp_path / "message"
    message.write_text("Subject: x\n\nx\n")
    async with submission(tmp_path, user()) as server:

        def send(password: str) -> int:
            address = f"smtps://127.0.0.1:{server.server.address[1]}"
            return subprocess.run(
                ["curl", "-sk", address, "--mail-from", "alice@example.org", "--mail-rcpt", "b@other.example", "--crlf",
                 "-T", str(message), "-u", f"alice:{password}"],
                timeout=30, check=False,
            ).returncode  # fmt: skip

        assert await asyncio.to_thread(send, PASSWORD) == 0
        assert await asyncio.to_thread(send, "wrong") == 67  # CURLE_LOGIN_DENIED
    assert [envelope.login for envelope, _, _ in server.intake.messages] == ["alice"]


# law: auth-only-under-tls


@pytest.mark.parametrize("tls", ["starttls", "required"])
async def test_no_login_in_the_clear(tmp_path: Path, tls: str) -> None:
    rule = Listener(purpose="submission", tls=tls, auth="required")
    async with submission(tmp_path, user(), rule=rule, networks=("127.0.0.0/8",)) as server:
        client = await server.server.client()
        await client.reply()
        assert b"AUTH" not in await client.ask(b"EHLO client.example")
        code = b"538 5.7.11 Encryption required" if tls == "starttls" else b"530 5.7.0 Must issue a STARTTLS"
        for command in (b"AUTH PLAIN " + plain(), b"AUTH PLAIN", b"AUTH LOGIN"):
            assert (await client.ask(command)).startswith(code)
        assert (await client.ask(MAIL)).startswith(b"530 5.7.0")
        assert (await client.ask(MAIL + b" AUTH=<>"))[:3] in (b"530", b"555")
        await client.ask(b"STARTTLS")
        await client.writer.start_tls(any_certificate())
        assert b"250-AUTH PLAIN LOGIN\r\n" in await client.ask(b"EHLO client.example")
        assert await client.ask(b"AUTH PLAIN " + plain()) == LOGGED_IN
    assert server.log.failures == []


async def test_a_login_that_is_off_is_neither_offered_nor_accepted(tmp_path: Path) -> None:
    async with submission(tmp_path, user(), rule=Listener(tls="implicit")) as server:
        client = await server.client()
        assert b"AUTH" not in await client.ask(b"EHLO c")
        assert (await client.ask(b"AUTH PLAIN " + plain())).startswith(b"503 5.5.1 Error: authentication not enabled")


# Where it is allowed


async def test_one_login_a_session_and_none_in_a_transaction(tmp_path: Path) -> None:
    async with submission(
        tmp_path, user(), rule=Listener(tls="implicit", auth="offered"), domains=["x.example"]
    ) as server:
        client = await server.server.client_tls()
        await client.reply()
        assert (await client.ask(b"AUTH PLAIN " + plain())).startswith(b"503 5.5.1 Error: send HELO/EHLO first")
        await client.ask(b"HELO c")
        assert (await client.ask(b"AUTH PLAIN " + plain())).startswith(b"503 5.5.1 Error: send EHLO first")
        await client.ask(b"EHLO c")
        await client.ask(MAIL)
        assert (await client.ask(b"AUTH PLAIN " + plain())).startswith(b"503 5.5.1 Error: MAIL transaction")
        assert (await client.ask(b"RCPT TO:<b@other.example>")).startswith(b"554 5.7.1")
        await client.ask(b"RSET")
        assert await client.ask(b"AUTH PLAIN " + plain()) == LOGGED_IN
        assert (await client.ask(b"AUTH PLAIN " + plain())).startswith(b"503 5.5.1 Error: already")
        await client.ask(b"EHLO c")
        assert (await client.ask(b"AUTH LOGIN")).startswith(b"503 5.5.1 Error: already")
        await client.ask(MAIL)
        assert (await client.ask(b"RCPT TO:<b@other.example>")).startswith(b"250")


async def test_auth_of_mail_is_taken_and_ignored(tmp_path: Path) -> None:
    async with submission(tmp_path, user()) as server:
        client = await server.logged_in()
        for value in (b"<>", b"b@example.org", b"e+3Dmc2@example.com"):
            assert (await client.ask(MAIL + b" AUTH=" + value)).startswith(b"250")
            await client.ask(b"RSET")
        for value in (b"", b"a+3", b"=", b"+"):
            assert (await client.ask(MAIL + b" AUTH=" + value)).startswith(b"501 5.5.4")
        await client.ask(MAIL + b" AUTH=<>")
        await client.ask(b"RCPT TO:<b@other.example>")
        await client.ask(b"DATA")
        await client.send(b"x\r\n.\r\n")
        await client.reply()
    assert server.intake.messages[0][0].options == ()


# Hostile clients


@pytest.mark.parametrize(
    ("response", "reply"),
    [
        (b"*", b"501 5.7.0 Authentication cancelled"),
        (b"%%%", b"501 5.5.2 Error: the response is not base64"),
        (b"AGEAYg", b"501 5.5.2"),
        (b"AGE\0AYg==", b"501 5.5.2"),
        (b"=", b"501 5.5.2"),
        (b"", b"501 5.5.2"),
        (b64("alice"), b"501 5.5.2"),
        (b64("\0alice\0"), b"501 5.5.2"),
        (b64(f"\0alice\0{PASSWORD}\0"), b"501 5.5.2"),  # a NUL in the password
        (b64(b"\0al\xffice\0x"), b"501 5.5.2"),
        (b64("\0alice\0" + "x" * 2000), b"501 5.5.2"),
        (plain(authzid="bob"), FAILED),
        (plain(authzid="alice"), LOGGED_IN),
        (plain(password=PASSWORD + " "), FAILED),
        (plain("bob"), FAILED),
        (plain("alice\u202e"), FAILED),
    ],
)
async def test_a_response_of_plain(tmp_path: Path, response: bytes, reply: bytes) -> None:
    async with submission(tmp_path, user()) as server:
        client = await server.client()
        await client.ask(b"AUTH PLAIN")
        assert (await client.ask(response)).startswith(reply)
        if reply != LOGGED_IN:
            assert (await client.ask(MAIL)).startswith(b"530 5.7.0")
            assert await client.ask(b"AUTH PLAIN " + plain()) == LOGGED_IN


@pytest.mark.parametrize("argument", [b"", b"PLAIN a b", b"NTLM", b"CRAM-MD5", b"PLAIN\xff", b"EXTERNAL ="])
async def test_a_wrong_argument(tmp_path: Path, argument: bytes) -> None:
    async with submission(tmp_path, user()) as server:
        client = await server.client()
        assert (await client.ask(b"AUTH " + argument))[:9] in (b"501 5.5.4", b"504 5.5.4")
        assert (await client.ask(b"NOOP")).startswith(b"250")


async def test_an_initial_response_may_be_empty(tmp_path: Path) -> None:
    async with submission(tmp_path, user()) as server:
        client = await server.client()
        assert (await client.ask(b"AUTH PLAIN =")).startswith(b"501 5.5.2")
        assert (await client.ask(b"AUTH LOGIN =")).startswith(b"501 5.5.2")


async def test_a_response_may_be_long_but_not_endless(tmp_path: Path) -> None:
    async with submission(tmp_path, user()) as server:
        client = await server.client()
        await client.ask(b"AUTH PLAIN")
        assert (await client.ask(b64(b"x" * 9_200))).startswith(b"501 5.5.2")
        await client.ask(b"AUTH PLAIN")
        assert (await client.ask(b"A" * 12_290)) == b"500 5.5.6 Error: authentication exchange line is too long\r\n"
        await client.ask(b"AUTH PLAIN")
        for _ in range(100):
            await client.send(b"A" * 100_000)
        session = next(iter(server.server.server.sessions))
        assert len(session._buffer) <= 12_288
        await client.send(b"\r\n")
        assert (await client.reply()).startswith(b"500 5.5.6")
        assert (await client.ask(b"x" * 3_000)).startswith(b"500 5.5.2 Error: line too long")
        assert await client.ask(b"AUTH PLAIN " + plain()) == LOGGED_IN


async def test_a_command_behind_auth_is_not_taken_for_a_response(tmp_path: Path) -> None:
    async with submission(tmp_path, user()) as server:
        client = await server.client()
        await client.send(b"AUTH PLAIN\r\nNOOP\r\n")
        assert [reply[:9] for reply in await client.replies(2)] == [b"503 5.5.1", b"250 2.0.0"]
        await client.send(b"AUTH LOGIN\r\n" + b64("alice") + b"\r\n" + b64(PASSWORD) + b"\r\n")
        assert [reply[:9] for reply in await client.replies(3)] == [b"503 5.5.1", b"500 5.5.2", b"500 5.5.2"]
        await client.ask(b"AUTH LOGIN")
        await client.send(b64("alice") + b"\r\nNOOP\r\n")
        assert [reply[:9] for reply in await client.replies(2)] == [b"503 5.5.1", b"250 2.0.0"]
        assert (await client.ask(MAIL)).startswith(b"530")
        # Behind an initial response no challenge comes, so the command is run, and after the login.
        await client.send(b"AUTH PLAIN " + plain() + b"\r\n" + MAIL + b"\r\nRSET\r\n")
        assert [reply[:9] for reply in await client.replies(3)] == [b"235 2.7.0", b"250 2.1.0", b"250 2.0.0"]


async def test_a_client_that_is_gone_while_its_password_is_checked(tmp_path: Path) -> None:
    async with submission(tmp_path, user(), auth={"failures_per_user": 3}) as server:
        for _ in range(3):
            client = await server.client()
            await client.send(b"AUTH PLAIN " + plain(password="wrong") + b"\r\n")
            await asyncio.sleep(0)
            client.reset()
        await eventually(lambda: len(server.log.failures) == 3)
        other = await server.client()
        assert (await other.ask(b"AUTH PLAIN " + plain())).startswith(b"454 4.7.0")
    assert server.intake.failures == []


async def test_an_exchange_that_stops_times_out(tmp_path: Path) -> None:
    async with submission(tmp_path, user(), idle_timeout_s=1) as server:
        client = await server.client()
        await client.ask(b"AUTH LOGIN")
        assert (await client.reply()).startswith(b"421 4.4.2")


async def test_errors_of_logins_end_the_session(tmp_path: Path) -> None:
    async with submission(tmp_path, user(), error_limit=3) as server:
        client = await server.client()
        for _ in range(3):
            assert await client.ask(b"AUTH PLAIN " + plain(password="wrong")) == FAILED
        assert (await client.reply()).startswith(b"421 4.7.0")


# law: login-reveals-no-user


async def test_an_unknown_user_costs_as_much_time_as_a_known_one(tmp_path: Path) -> None:
    """With verifiers of 10 ms: the median of a few tries of each kind, and generous, because the machine is shared."""
    hasher = argon2.PasswordHasher(time_cost=2, memory_cost=8192, parallelism=1)
    known = user(verifier=hasher.hash(PASSWORD))
    locked = user("locked", verifier=hasher.hash(PASSWORD), enabled=False)
    async with submission(tmp_path, known, locked, error_limit=1000) as server:
        client = await server.client()
        took: dict[str, list[float]] = {"alice": [], "unknown": [], "locked": []}
        for _ in range(5):
            for name, times in took.items():
                began = time.process_time()
                assert await client.ask(b"AUTH PLAIN " + plain(name, "wrong")) == FAILED
                times.append(time.process_time() - began)
        medians = {name: sorted(times)[2] for name, times in took.items()}
    assert max(medians.values()) < 3 * min(medians.values()), medians


async def test_scram_gives_an_unknown_user_a_salt_that_stays(tmp_path: Path) -> None:
    async with submission(tmp_path, user(scram=True), user("off", scram=True, enabled=False)) as server:
        salts: dict[str, list[bytes]] = {}
        for name in ("alice", "unknown", "unknown", "off"):
            client = await server.client()
            answer = await client.ask(b"AUTH SCRAM-SHA-256 " + b64(f"n,,n={name},r=abc"))
            assert answer.startswith(b"334 ")
            salt = base64.b64decode(answer[4:]).split(b",")[1:]
            assert salts.setdefault(name, salt) == salt
        assert len({tuple(salt) for salt in salts.values()}) == 3
        assert {len(salt[0]) for salt in salts.values()} == {len(salts["alice"][0])}


# law: logins-throttled


async def test_passwords_wait_in_a_bounded_queue(tmp_path: Path) -> None:
    gate = threading.Event()
    async with submission(tmp_path, user(), auth={"password_threads": 1, "passwords_waiting_max": 1}) as server:
        server.authentication._checks.submit(gate.wait)
        first, second, third = [await server.client() for _ in range(3)]
        await first.send(b"AUTH PLAIN " + plain() + b"\r\n")
        await eventually(lambda: server.authentication._checking == 1)
        await second.send(b"AUTH PLAIN " + plain() + b"\r\n")
        await eventually(lambda: server.authentication._checking == 2)
        assert (await third.ask(b"AUTH PLAIN " + plain())) == b"454 4.7.0 Temporary authentication failure\r\n"
        assert (await third.ask(b"NOOP")).startswith(b"250")  # the event loop does not wait
        gate.set()
        assert await first.reply() == LOGGED_IN
        assert await second.reply() == LOGGED_IN


async def test_guesses_leave_places_for_users_who_are_known(tmp_path: Path) -> None:
    gate = threading.Event()
    limits = {"password_threads": 1, "passwords_waiting_max": 2}
    async with submission(tmp_path, user(), user("bob"), auth=limits) as server:
        await server.logged_in("bob")
        server.authentication._checks.submit(gate.wait)
        try:
            for number in (1, 2):
                client = await server.client()
                await client.send(b"AUTH PLAIN " + plain(f"guess{number}") + b"\r\n")
                await eventually(lambda number=number: server.authentication._checking == number)
            assert await (await server.client()).ask(b"AUTH PLAIN " + plain()) == BUSY
            bob, again = await server.client(), await server.client()
            await bob.send(b"AUTH PLAIN " + plain("bob") + b"\r\n")
            await eventually(lambda: server.authentication._checking == 3)
            assert await again.ask(b"AUTH PLAIN " + plain("bob")) == BUSY
        finally:
            gate.set()
        assert await bob.reply() == LOGGED_IN


async def test_the_log_says_of_a_throttled_login_that_it_is_throttled_also_when_many_wait(tmp_path: Path) -> None:
    gate = threading.Event()
    limits = {"password_threads": 1, "passwords_waiting_max": 1, "failures_per_user": 2}
    async with submission(tmp_path, user(), user("bob"), auth=limits) as server:
        server.authentication._checks.submit(gate.wait)
        try:
            for number in (1, 2):
                client = await server.client()
                await client.send(b"AUTH PLAIN " + plain(password="wrong") + b"\r\n")
                await eventually(lambda number=number: server.authentication._checking == number)
            client = await server.client()
            assert await client.ask(b"AUTH PLAIN " + plain()) == BUSY
            assert await client.ask(b"AUTH PLAIN " + plain("bob")) == BUSY
            assert [why for _, _, why in server.log.failures] == ["too many failures", "too many logins wait"]
        finally:
            gate.set()


async def test_failures_of_a_network_and_of_a_name_are_throttled(tmp_path: Path) -> None:
    async with submission(
        tmp_path, user(), user("bob"), auth={"failures_per_user": 2, "failures_per_network": 5}
    ) as server:
        for name, count in (("alice", 2), ("unknown", 2)):
            for _ in range(count):
                assert await (await server.client()).ask(b"AUTH PLAIN " + plain(name, "wrong")) == FAILED
            reply = await (await server.client()).ask(b"AUTH PLAIN " + plain(name))
            assert reply == b"454 4.7.0 Temporary authentication failure\r\n", (
                "the right password is not looked at, too"
            )
        await server.logged_in("bob")
        assert await (await server.client()).ask(b"AUTH PLAIN " + plain("carol", "wrong")) == FAILED
        assert (await (await server.client()).ask(b"AUTH PLAIN " + plain("dave"))).startswith(b"454")
        await server.logged_in("bob")  # known here
        server.times[0] += 2 * 600
        await server.logged_in("alice")


@pytest.mark.parametrize("kind", ["failures_per_user", "failures_per_network"])
async def test_scram_is_throttled_before_a_proof_is_compared(tmp_path: Path, kind: str) -> None:
    async with submission(tmp_path, user(scram=True), auth={kind: 2}) as server:
        for _ in range(2):
            assert await scram(await server.client(), password="wrong") == FAILED
        client = await server.client()
        assert [await scram_replies(client, password=password) for password in ("wrong", PASSWORD, "wrong")] == 3 * [
            [BUSY]
        ]
    assert server.log.failures[2:5] == 3 * [("SCRAM-SHA-256", "alice", "too many failures")]


async def test_an_exchange_that_began_before_the_limit_says_nothing_of_its_proof(tmp_path: Path) -> None:
    """Many connections may begin before one proof is counted: from the limit on, a right one is answered as a wrong one."""
    async with submission(tmp_path, user(scram=True), auth={"failures_per_user": 2}) as server:
        proceed = asyncio.Event()
        begun = [
            asyncio.create_task(scram_replies(await server.client(), password=password, proceed=proceed))
            for password in ("wrong", PASSWORD)
        ]
        for _ in range(2):
            assert await scram(await server.client(), password="wrong") == FAILED
        proceed.set()
        assert [replies[1:] for replies in await asyncio.gather(*begun)] == [[BUSY], [BUSY]]


async def test_a_try_counts_once_and_a_right_one_not_at_all(tmp_path: Path) -> None:
    async with submission(tmp_path, user(scram=True), auth={"failures_per_user": 2}) as server:
        assert await scram(await server.client(), password="wrong") == FAILED
        for _ in range(3):
            assert await scram(await server.client()) == LOGGED_IN
        assert server.authentication._counts.failures.read("user alice")[0] == 1


async def test_tries_beyond_the_limit_end_the_session(tmp_path: Path) -> None:
    """The first 454 may be the fault of others; a client that tries on in spite of it makes errors."""
    async with submission(tmp_path, user(scram=True), auth={"failures_per_user": 1}, error_limit=3) as server:
        assert await scram(await server.client(), password="wrong") == FAILED
        for attempt in (b"AUTH PLAIN " + plain(), b"AUTH SCRAM-SHA-256 " + b64("n,,n=alice,r=abc")):
            client = await server.client()
            for _ in range(4):
                assert await client.ask(attempt) == BUSY
            assert (await client.reply()).startswith(b"421 4.7.0")


# law: disabled-user-sends-nothing


@pytest.mark.parametrize("change", ["disabled", "removed", "password"])
@pytest.mark.parametrize("when", ["before MAIL", "before DATA"])
async def test_a_user_who_may_no_longer_log_in_sends_nothing_more(tmp_path: Path, change: str, when: str) -> None:
    other = user("other")
    async with submission(tmp_path, user(), other) as server:
        client = await server.logged_in()
        if when == "before DATA":
            await client.ask(MAIL)
            await client.ask(b"RCPT TO:<b@other.example>")
        changed = {"disabled": user(enabled=False), "password": user()}.get(change)
        await server.changed(*([changed] if changed is not None else []), other)
        await eventually(lambda: server.authentication.users.get("alice") == changed)
        reply = await client.ask(MAIL if when == "before MAIL" else b"DATA")
        assert reply.startswith(b"421 4.7.0")
        assert await client.rest() == b""
    assert server.intake.messages == []


async def test_a_password_that_changes_during_scram_ends_the_exchange(tmp_path: Path) -> None:
    async with submission(tmp_path, user(scram=True)) as server:
        client = await server.client()
        asked = client.ask

        async def ask(line: bytes) -> bytes:
            if not line:
                verifier = str(ScramVerifier.of_password("another", b"0123456789abcdef", 4096))
                await server.changed(user(verifier=verifier))
            return await asked(line)

        client.ask = ask  # type: ignore[method-assign, assignment]
        assert await scram(client) == FAILED


# What a user may send


@pytest.mark.parametrize(
    ("sender", "reply"),
    [
        (b"alice@example.org", b"250"),
        (b"ALICE@Example.ORG", b"250"),
        (b"", b"250"),
        (b"any@sales.example.org", b"250"),
        (b"bob@example.org", b"553 5.7.1 <bob@example.org>: Sender address rejected: not owned by user alice\r\n"),
        (b"alice@example.org.evil.example", b"553 5.7.1"),
    ],
)
async def test_a_user_sends_with_its_own_addresses(tmp_path: Path, sender: bytes, reply: bytes) -> None:
    async with submission(tmp_path, user(senders=("alice@example.org", ".example.org"))) as server:
        client = await server.logged_in()
        assert (await client.ask(b"MAIL FROM:<" + sender + b">")).startswith(reply)


async def test_a_user_has_rates(tmp_path: Path) -> None:
    users = user(messages_per_hour=3), user("bob", recipients_per_hour=0), user("carol")
    async with submission(tmp_path, *users, auth={"messages_per_hour": 2, "recipients_per_hour": 4}) as server:
        client = await server.logged_in()
        for _ in range(3):
            assert (await client.ask(MAIL)).startswith(b"250")
            await client.ask(b"RSET")
        again = await server.logged_in()
        assert (await again.ask(MAIL)) == b"450 4.7.1 Error: too much mail from user alice\r\n"
        bob = await server.logged_in("bob")
        await bob.ask(MAIL)
        replies = [await bob.ask(b"RCPT TO:<r%d@other.example>" % number) for number in range(6)]
        assert all(reply.startswith(b"250") for reply in replies)
        carol = await server.logged_in("carol")
        await carol.ask(MAIL)
        replies = [await carol.ask(b"RCPT TO:<r%d@other.example>" % number) for number in range(6)]
        assert [reply[:9] for reply in replies] == [b"250 2.1.5"] * 4 + [b"450 4.7.1"] * 2
        server.times[0] += 2 * 3600
        assert (await again.ask(MAIL)).startswith(b"250")


# The file


async def test_at_a_start_the_users_of_the_other_lines_can_log_in(tmp_path: Path) -> None:
    async with submission(tmp_path, user()) as server:
        server.path.write_text(server.path.read_text() + "{\n")
        server.authentication.start()
        assert "users.jsonl:" in server.log.refused[0]
        assert server.log.at_start is True
        await server.logged_in()


async def test_a_damaged_file_keeps_the_users(tmp_path: Path) -> None:
    async with submission(tmp_path, user()) as server:
        client = await server.logged_in()
        server.path.write_text("{\n")
        server.authentication.look()
        await eventually(lambda: server.log.refused)
        assert "users.jsonl:1: " in server.log.refused[0]
        assert server.log.at_start is False
        assert (await client.ask(MAIL)).startswith(b"250")
        await server.logged_in()
        server.path.unlink()
        server.authentication.look()
        await eventually(lambda: len(server.log.refused) == 2)
        await server.logged_in()
        await server.changed(user("bob"))
        await server.logged_in("bob")
        assert await (await server.client()).ask(b"AUTH PLAIN " + plain()) == FAILED


async def test_without_users_no_login_falls_through(tmp_path: Path) -> None:
    async with serving(tls=server_tls(tmp_path), rule=SUBMISSION) as server:
        client: Client = await server.client_tls()
        await client.hello()
        assert (await client.ask(MAIL)).startswith(b"530 5.7.0")
        assert (await client.ask(b"AUTH PLAIN " + plain())).startswith(b"454 4.7.0")
