"""A command that comes a second after the start of the core waits for the process that it needs."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

from mailcore.control.starting import wait_until_it_listens


def listening(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen()
    return server


def test_it_waits_while_the_core_runs(tmp_path: Path) -> None:
    path, control = tmp_path / "exporter.sock", tmp_path / "control.sock"
    servers = [listening(control)]
    late = threading.Timer(0.3, lambda: servers.append(listening(path)))
    late.start()
    assert wait_until_it_listens(path, control)
    late.join()
    assert wait_until_it_listens(path, control, patience_s=0.0)
    for server in servers:
        server.close()


def test_it_does_not_wait_for_a_core_that_has_ended(tmp_path: Path) -> None:
    path, control = tmp_path / "exporter.sock", tmp_path / "control.sock"
    assert not wait_until_it_listens(path, control, patience_s=3600.0)
    listening(control).close()  # its socket stays behind
    listening(path).close()
    assert not wait_until_it_listens(path, control, patience_s=3600.0)


def test_its_patience_has_an_end(tmp_path: Path) -> None:
    control = listening(tmp_path / "control.sock")
    begun = time.monotonic()
    assert not wait_until_it_listens(tmp_path / "exporter.sock", tmp_path / "control.sock", patience_s=0.2)
    assert time.monotonic() - begun >= 0.2
    control.close()
