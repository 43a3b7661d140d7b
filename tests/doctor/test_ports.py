"""Ports: held by us, by another, by nobody; silent; unwilling; and port 25."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.doctor import ports
from mailcore.doctor.finding import State
from mailcore.doctor.host import Process
from mailcore.doctor.sockets import Listener, holders, listeners, matches
from tests.doctor.sample_host import found, sample_host
from tests.end_to_end.appliance import free_port


@contextlib.contextmanager
def listening(address: str = "127.0.0.1", greeting: bytes | None = None) -> Iterator[int]:
    """A port that this process holds; ``greeting`` None: it says nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:

        def answer() -> None:
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(greeting or b"")
                    connection.recv(100)

        if greeting is not None:
            threading.Thread(target=answer, daemon=True).start()
        yield int(server.getsockname()[1])


def config(port: int, address: str = "127.0.0.1") -> str:
    shown = f"[{address}]" if ":" in address else address
    return f'[receiver]\nlisten = ["{shown}:{port}"]\n[portal]\nlisten = "127.0.0.1:{free_port()}"\n'


OURS = {"receiver.0": Process("receiver.0", os.getpid(), 0.0, 0)}


@pytest.fixture(autouse=True)
def ours_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process passes for a receiver of Waypost where a test says that it is one."""
    monkeypatch.setattr("mailcore.doctor.host.alive", lambda pid: pid == os.getpid())


def test_nobody_listens(tmp_path: Path) -> None:
    findings = list(ports.look(sample_host(tmp_path, config(free_port()))))
    assert found(findings, "(SMTP)").state is State.BAD
    assert "no process listens" in found(findings, "(SMTP)").found
    assert found(findings, "(portal)").state is State.WARN


def test_another_program_holds_the_port(tmp_path: Path) -> None:
    with listening() as port:
        finding = found(ports.look(sample_host(tmp_path, config(port))), "(SMTP)")
    assert finding.state is State.BAD
    assert f"(process {os.getpid()}), which is not Waypost" in finding.found
    assert finding.figures["holders"] == [os.getpid()]


def test_another_waypost_holds_the_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = tmp_path / "proc"
    (proc / str(os.getpid())).mkdir(parents=True)
    (proc / str(os.getpid()) / "cmdline").write_bytes(b"waypost: receiver.0 /srv/another\0")
    with listening() as port:
        monkeypatch.setattr(ports, "PROC", proc)
        finding = found(ports.look(sample_host(tmp_path, config(port))), "(SMTP)")
    assert f"(process {os.getpid()}), another Waypost" in finding.found


def test_another_program_holds_it_on_all_addresses(tmp_path: Path) -> None:
    with listening("0.0.0.0") as port:
        assert found(ports.look(sample_host(tmp_path, config(port))), "(SMTP)").state is State.BAD


def test_we_hold_it_and_greet(tmp_path: Path) -> None:
    with listening(greeting=b"220 mail.example.org ESMTP\r\n") as port:
        host = sample_host(tmp_path, config(port))
        host.processes = OURS
        finding = found(ports.look(host), "(SMTP)")
    assert finding.state is State.GOOD
    assert "receiver.0" in finding.found


def test_it_greets_over_ipv6(tmp_path: Path) -> None:
    with listening("::1", greeting=b"220 mail.example.org ESMTP\r\n") as port:
        host = sample_host(tmp_path, config(port, "::1"))
        host.processes = OURS
        assert found(ports.look(host), "(SMTP)").state is State.GOOD


def test_it_takes_no_more_and_says_so_in_hostile_words(tmp_path: Path) -> None:
    with listening(greeting=b"421 too many \x1b[31m\xff\r\n") as port:
        host = sample_host(tmp_path, config(port))
        host.processes = OURS
        finding = found(ports.look(host), "(SMTP)")
    assert finding.state is State.WARN
    assert "421 too many" in finding.found
    assert "\x1b" not in finding.found


def test_it_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "CONNECT_S", 0.2)
    with listening() as port:
        host = sample_host(tmp_path, config(port))
        host.processes = OURS
        finding = found(ports.look(host), "(SMTP)")
    assert finding.state is State.BAD
    assert "no SMTP greeting within 0.2 s" in finding.found


def test_another_mail_server_stands_where_the_world_knocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as port:
        monkeypatch.setattr(ports, "SMTP", port)
        monkeypatch.setattr(ports, "name_of", lambda pid: "master")
        finding = found(ports.look(sample_host(tmp_path, config(free_port()))), "port 25")
    assert finding.state is State.WARN
    assert "held by Postfix" in finding.found


def test_mail_from_outside_is_expected_and_can_not_come(tmp_path: Path) -> None:
    text = config(free_port()) + '[relay]\ndomains = ["example.org"]\n'
    assert found(ports.look(sample_host(tmp_path, text)), "reachable").state is State.WARN


def test_the_portal_is_another_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_is_portal", lambda pid: False)
    with listening() as port:
        text = f'[receiver]\nlisten = ["127.0.0.1:{free_port()}"]\n[portal]\nlisten = "127.0.0.1:{port}"\n'
        assert found(ports.look(sample_host(tmp_path, text)), "(portal)").state is State.BAD


def test_the_kernel_says_who_listens_where() -> None:
    with listening("127.0.0.2") as four, listening("::1") as six:
        there = listeners()
        inodes = {each.inode for each in there if each.port in (four, six)}
        assert {(each.address, each.port) for each in there} >= {("127.0.0.2", four), ("::1", six)}
        assert [os.getpid() in pids for pids in holders(inodes).values()] == [True, True]


@pytest.mark.parametrize(
    ("listener", "address", "met"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "192.0.2.1", True),
        ("0.0.0.0", "::1", False),
        ("::", "192.0.2.1", True),
        ("127.0.0.1", "192.0.2.1", False),
        ("127.0.0.1", "0.0.0.0", True),  # who wants all addresses can't have this one
    ],
)
def test_who_meets_whom(listener: str, address: str, met: bool) -> None:
    assert matches(Listener(listener, 25, 1), address, 25) is met
    assert not matches(Listener(listener, 26, 1), address, 25)


def test_a_process_that_the_supervisor_has_just_started_is_ours(tmp_path: Path) -> None:
    """A receiver listens before the supervisor has recorded it."""
    with listening() as port:
        host = sample_host(tmp_path, config(port))
        host.processes = {"supervisor": Process("supervisor", os.getppid(), 0.0, 0)}
        finding = found(ports.look(host), "(SMTP)")
        assert "held by" not in finding.found
        host.processes = {"supervisor": Process("supervisor", None, 0.0, 0)}
        assert "which is not Waypost" in found(ports.look(host), "(SMTP)").found
