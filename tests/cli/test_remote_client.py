"""The transport of ``waypost --remote``: tokens, certificates, and what is sent again when no answer comes."""

from __future__ import annotations

import hashlib
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from mailcore.cli.main import main
from mailcore.control.client import NotRunning, Refused, TimedOut
from mailcore.control.passage import FRAMES
from mailcore.faults import Code, Fault
from mailcore.frames import Response, encode
from mailcore.terminal.command import UsageError
from mailcore.terminal.remote import RemoteClient
from mailcore.terminal.remote_target import Target, target_of
from tests.doctor.sample_host import certificate as make_certificate
from tests.test_tidy import ROOT

PING = {"pid": 7, "manager": True}
HELD = {"changed": 1, "recipients": 1, "in_flight": 0, "too_late": 0, "undecided": 0, "errors": {}, "dead": []}
ID = "1K0RDGV4BE900"
Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture(autouse=True)
def no_message_matters() -> None:
    """Keeps the words: here they are this transport's own."""


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Notes pauses instead of making them."""
    pauses: list[float] = []
    monkeypatch.setattr("mailcore.terminal.remote.time.sleep", pauses.append)
    return pauses


class Portal:
    """Answers each request with the next of ``answers``; the last one stays."""

    def __init__(self, answers: list[Answer], context: ssl.SSLContext | None = None) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        portal = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                portal.requests.append((self.path, dict(self.headers), body))
                answers[min(len(portal.requests), len(answers)) - 1](self)

            def log_message(self, *_: Any) -> None:
                """Is silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if context is not None:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]

    @property
    def keys(self) -> list[str]:
        return [headers.get("Idempotency-Key", "") for _, headers, _ in self.requests]


@contextmanager
def portal(*answers: Answer, context: ssl.SSLContext | None = None) -> Iterator[Portal]:
    it = Portal(list(answers), context)
    thread = threading.Thread(target=it.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield it
    finally:
        it.server.shutdown()
        thread.join(5)
        it.server.server_close()


def says(status: int, body: bytes, kind: str = "application/json", **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def frames(*parts: Any, fault: Fault | None = None, status: int = 200) -> Answer:
    answers = [Response(0, part, last=False) for part in parts]
    end = Response(0, None, fault) if fault is not None else Response(0, answers.pop().result)
    return says(status, b"".join(map(encode, [*answers, end])), FRAMES)


def fault(status: int, code: str, message: str, **headers: str) -> Answer:
    return says(status, json.dumps({"code": code, "message": message}).encode(), **headers)


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.close()


def client(it: Portal, **named: Any) -> RemoteClient:
    return RemoteClient(Target("127.0.0.1", it.port, False, "", "wpt_x", **named), timeout_s=5)


def test_an_answer_comes_through_and_the_connection_is_used_again() -> None:
    with portal(frames(PING)) as it, client(it) as control:
        assert [control.call("ping"), control.call("ping")] == [PING, PING]
        path, headers, body = it.requests[0]
        assert (path, headers["Authorization"], json.loads(body)["arguments"]) == (
            "/api/v1/control/ping", "Bearer wpt_x", {},
        )  # fmt: skip
        assert it.keys == ["", ""], "a question has no key"


def test_infinite_numbers_and_bytes_come_through() -> None:
    given = {"data": b"\x00\xff", "until": float("inf")}
    with portal(frames(given)) as it, client(it) as control:
        assert control.call("ping") == given


def test_parts_before_a_fault_are_there() -> None:
    with portal(frames({"a": 1}, fault=Fault(Code.CONFLICT, "no", "x"))) as it, client(it) as control:
        parts = control.parts("show", {"queue_id": ID})
        assert next(parts) == {"a": 1}
        with pytest.raises(Refused) as refused:
            next(parts)
        assert refused.value.fault == Fault(Code.CONFLICT, "no", "x")


def test_a_change_without_an_answer_is_sent_again_with_its_key() -> None:
    with portal(hangs_up, hangs_up, frames(HELD)) as it, client(it) as control:
        assert control.call("hold", {"queue_ids": [ID]}) == HELD
        assert len(set(it.keys)) == 1
        assert len(it.keys) == 3
        assert it.keys[0]
        control.call("hold", {"queue_ids": [ID]})
        assert it.keys[3] != it.keys[0], "another change has another key"


def test_a_change_that_never_gets_an_answer_is_unknown_and_names_its_key(capsys: pytest.CaptureFixture[str]) -> None:
    with portal(hangs_up) as it, client(it, request_key="mine") as control:
        with pytest.raises(TimedOut) as unknown:
            control.call("hold", {"queue_ids": [ID]})
        assert unknown.value.code is Code.OUTCOME_UNKNOWN
        assert it.keys == ["mine-1"] * 3
    assert "--request-key mine" in capsys.readouterr().err


def test_an_answer_that_ends_too_early_is_no_answer() -> None:
    whole = encode(Response(0, HELD))
    for cut in (whole[:-3], encode(Response(0, HELD, last=False))):
        with portal(says(200, cut, FRAMES)) as it, client(it) as control, pytest.raises(TimedOut):
            control.call("hold", {"queue_ids": [ID]})


def test_a_question_is_asked_again_only_where_a_kept_connection_was_closed() -> None:
    with portal(frames(PING), hangs_up, frames(PING)) as it, client(it) as control:
        assert [control.call("ping"), control.call("ping")] == [PING, PING]
        assert len(it.requests) == 3


def test_the_limit_of_requests_is_waited_for(no_pauses: list[float]) -> None:
    busy = fault(429, "busy", "too many", Retry_After="7")
    with portal(busy, frames(HELD)) as it, client(it) as control:
        assert control.call("hold", {"queue_ids": [ID]}) == HELD
        assert no_pauses == [7]
        assert len(set(it.keys)) == 1


def test_a_request_that_is_still_worked_on_is_asked_for_again(no_pauses: list[float]) -> None:
    under_way = fault(503, "busy", "still being worked on", Retry_After="1")
    with portal(under_way, frames(HELD)) as it, client(it) as control:
        assert control.call("hold", {"queue_ids": [ID]}) == HELD
        assert no_pauses == [1]


@pytest.mark.parametrize(
    ("answer", "error", "code", "words"),
    [
        (fault(401, "forbidden", "x"), Refused, Code.FORBIDDEN, "the token is not valid"),
        (fault(403, "forbidden", "This token lacks the scope queue."), Refused, Code.FORBIDDEN, "lacks the scope queue"),
        (fault(422, "invalid", "until: wrong"), Refused, Code.INVALID, "until: wrong"),
        (fault(503, "unavailable", "Waypost is not running"), NotRunning, Code.UNAVAILABLE, "not running"),
        (fault(504, "outcome_unknown", "may have been done"), TimedOut, Code.OUTCOME_UNKNOWN, "may have been done"),
        (says(502, b"<html>", "text/html"), NotRunning, Code.UNAVAILABLE, "HTTP 502"),
        (says(404, b"<html>", "text/html"), Refused, Code.NOT_FOUND, "not from a Waypost"),
        (says(302, b"", Location="https://evil.example/"), NotRunning, Code.UNAVAILABLE, "https://evil.example/"),
    ],
)  # fmt: skip
def test_an_error_of_the_portal_is_one_sentence_with_its_code(
    answer: Answer, error: type[Exception], code: Code, words: str
) -> None:
    with portal(answer) as it, client(it) as control:
        with pytest.raises(error, match=words) as raised:
            control.call("hold", {"queue_ids": [ID]})
        assert getattr(raised.value, "code", None) is code
        assert len(it.requests) == 1, "no redirection is followed"


def test_a_message_is_one_request() -> None:
    with portal(frames({"queue_id": ID})) as it, client(it) as control:
        control.call("inject_begin", {"sender": "a@b.example", "recipients": ["c@d.example"]}, why="by hand")
        control.call("inject_data", {"data": b"Subject: x\n"})
        control.call("inject_data", {"data": b"\n\xff\n"})
        assert control.call("inject_end") == {"queue_id": ID}
        ((path, _, body),) = it.requests
    head, _, data = body.partition(b"\n")
    assert (path, json.loads(head)["why"], data) == ("/api/v1/control/inject", "by hand", b"Subject: x\n\n\xff\n")


# -- certificates


def tls(tmp_path: Path) -> tuple[ssl.SSLContext, Path, str]:
    pem = make_certificate(tmp_path, "localhost", 90)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    der = x509.load_pem_x509_certificate(pem.read_bytes()).public_bytes(Encoding.DER)
    return context, pem, hashlib.sha256(der).hexdigest()


def test_a_certificate_of_nobody_we_know_is_refused_before_the_token_is_sent(tmp_path: Path) -> None:
    context, certificate, fingerprint = tls(tmp_path)
    with portal(frames(PING), context=context) as it:

        def ask(**named: Any) -> Any:
            with RemoteClient(Target("localhost", it.port, True, "", "wpt_x", **named), timeout_s=5) as control:
                return control.call("ping")

        with pytest.raises(NotRunning, match="--ca-file") as refused:
            ask()
        assert refused.value.code is Code.FORBIDDEN
        with pytest.raises(NotRunning, match="another fingerprint"):
            ask(fingerprint="0" * 64)
        with pytest.raises(NotRunning, match="nothing-here"):
            ask(ca_file=str(tmp_path / "nothing-here"))
        assert it.requests == []
        assert ask(ca_file=str(certificate)) == PING
        assert ask(fingerprint=fingerprint) == PING


# -- which portal, and the token


def options(**given: Any) -> Any:
    names = ("remote", "token_file", "ca_file", "fingerprint", "request_key")
    return type("Options", (), dict.fromkeys(names) | given)


@pytest.fixture
def token_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("WAYPOST_REMOTE", "WAYPOST_TOKEN_FILE", "WAYPOST_CA_FILE", "WAYPOST_FINGERPRINT"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text("wpt_secret\n")
    return file


def test_the_token_is_read_alone_or_as_a_header(token_file: Path) -> None:
    for text in ("wpt_secret", "wpt_secret\n", "Authorization: Bearer wpt_secret\n"):
        token_file.write_text(text)
        target = target_of(options(remote="https://mail.example.org", token_file=str(token_file)))
        assert target == Target("mail.example.org", 443, True, "", "wpt_secret")


def test_the_environment_names_the_portal_and_the_home_has_the_token(
    token_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert target_of(options()) is None
    monkeypatch.setenv("WAYPOST_REMOTE", "https://mail.example.org:8443/portal/")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "waypost").mkdir(parents=True)
    token_file.rename(tmp_path / "config" / "waypost" / "token")
    target = target_of(options())
    assert target is not None
    assert (target.port, target.prefix, target.shown) == (8443, "/portal", "https://mail.example.org:8443/portal")
    assert target_of(options(remote="")) is None, "an empty one is this host"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"remote": "http://mail.example.org"}, "http would send the token"), ({"remote": "mail.example.org"}, "https://HOST"),
        ({"remote": "http://127.0.0.1.evil.example"}, "http would"), ({"remote": "https://user:x@host"}, "only host"),
        ({"remote": "https://host:port"}, "port"), ({"remote": "https://host?x"}, "only host"), ({"ca_file": "x"}, "needs"),
        ({"remote": "https://h", "fingerprint": "abc"}, "64"), ({"remote": "https://h", "request_key": "a b"}, "visible"),
        ({"remote": "https://h", "token_file": "/nothing/here"}, "/nothing/here"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(given: dict[str, Any], words: str, token_file: Path) -> None:
    with pytest.raises(UsageError, match=words):
        target_of(options(**({"token_file": str(token_file)} if "remote" in given else {}) | given))


def test_a_token_that_others_can_read_is_not_used(token_file: Path) -> None:
    token_file.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        target_of(options(remote="https://h", token_file=str(token_file)))
    token_file.chmod(0o600)
    token_file.write_text("two words")
    with pytest.raises(UsageError, match="no token") as wrong:
        target_of(options(remote="https://h", token_file=str(token_file)))
    assert "two words" not in str(wrong.value)


def test_exit_statuses_are_those_of_the_command_on_the_host(
    token_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def status(answer: Answer) -> int:
        with portal(answer) as it:
            return main(["--remote", f"http://127.0.0.1:{it.port}", "--token-file", str(token_file), "ping"])

    assert status(frames(PING)) == 0
    assert status(fault(401, "forbidden", "x")) == 1
    assert status(fault(503, "unavailable", "x")) == 3
    assert main(["--remote", "http://127.0.0.1:1", "--token-file", str(token_file), "ping"]) == 3
    assert main(["--remote", "http://example.org", "--token-file", str(token_file), "ping"]) == 2
    assert "wpt_secret" not in "".join(capsys.readouterr())


def test_nothing_of_it_is_loaded_for_a_command_on_the_host() -> None:
    script = "import sys; from mailcore.cli.main import main; main(['--version']); print('http.client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
