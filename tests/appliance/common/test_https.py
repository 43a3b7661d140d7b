"""The portal with a certificate of its own: HTTPS on a socket that systemd passed, without a proxy in front."""

from __future__ import annotations

import http.client
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from mailcore.setup.certificate import make
from tests.appliance.common.test_first_password import run, written
from tests.eventually import PATIENCE_S
from tests.setup.test_certificate import NOW, US
from tests.test_tidy import ROOT

# As systemd starts a service with one socket: it is descriptor 3, and the variable has the process's own number.
ACTIVATED = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.argv[2], sys.argv[2:])
"""


@contextmanager
def portal(place: Path, processes: int) -> Iterator[tuple[int, ssl.SSLContext]]:
    certificate, key = place / "certificate.pem", place / "key.pem"
    make(certificate, key, ["portal.example.org", "127.0.0.1"], US, 0o600, NOW)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        environment = written(
            place,
            f'listen = "127.0.0.1:{port}"\nprocesses = {processes}\npublic_url = "https://portal.example.org"\n'
            f'tls_certificate = "{certificate}"\ntls_key = "{key}"\n',
        )
        process = subprocess.Popen(
            [sys.executable, "-c", ACTIVATED, str(listener.fileno()), sys.executable, "-m", "django", "serve"],
            cwd=ROOT, env=environment, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        context = ssl.create_default_context(cafile=str(certificate))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        yield port, context
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()


@pytest.mark.parametrize("processes", [1, 2])
def test_it_answers_with_its_certificate_and_believes_no_header(tmp_path: Path, processes: int) -> None:
    with portal(tmp_path, processes) as (port, context):

        def answer(host: str, **headers: str) -> http.client.HTTPResponse:
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE_S, context=context)
            with closing(connection):
                connection.request("GET", "/accounts/login/", headers={"Host": host, **headers})
                found = connection.getresponse()
                found.read()
                return found

        found = answer(f"127.0.0.1:{port}")  # waits in the socket until the portal has started
        assert found.status == 200
        assert "__Host-waypost-csrf" in (found.getheader("Set-Cookie") or "")
        assert answer("portal.example.org").status == 200
        assert answer("another.example.org").status == 400
        assert answer("127.0.0.1", **{"X-Forwarded-Proto": "http"}).status == 200


def test_a_key_of_another_certificate_is_said_before_the_start(tmp_path: Path) -> None:
    make(tmp_path / "certificate.pem", tmp_path / "other.pem", ["a.example"], US, 0o600, NOW)
    make(tmp_path / "a.pem", tmp_path / "key.pem", ["a.example"], US, 0o600, NOW)
    environment = written(
        tmp_path,
        f'listen = "127.0.0.2:8025"\ntls_certificate = "{tmp_path}/certificate.pem"\ntls_key = "{tmp_path}/key.pem"\n',
    )
    done = run(environment, "serve")
    assert done.returncode == 1
    assert "[portal] tls_certificate or tls_key cannot be used: KEY_VALUES_MISMATCH" in done.stderr
