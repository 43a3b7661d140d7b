"""``waypost user``: users are added, changed and removed, and a password appears nowhere but in its verifier."""

from __future__ import annotations

import io
import json
import os
import pty
import stat
import sys
import threading
from pathlib import Path

import pytest

from mailcore.cli.main import main
from mailcore.users.user_file import read_users
from mailcore.users.verifier import matches

PASSWORD = "correct horse"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    config = tmp_path / "waypost.toml"
    config.write_text('home = "home"\n')
    return config


def run(config: Path, monkeypatch: pytest.MonkeyPatch, *words: str, password: str = PASSWORD) -> int:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{password}\nrest\n".encode())))
    return main(["user", *words, "--config", str(config)])


def test_a_user_from_add_to_remove(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config.parent / "home" / "users.jsonl"
    assert run(config, monkeypatch, "add", "Alice@Example.org", "--password-stdin") == 0
    user = read_users(file).find("alice@example.org")
    assert user is not None
    assert user.senders == ("alice@example.org",)
    assert matches(user.verifier, PASSWORD)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert (
        run(
            config,
            monkeypatch,
            "add",
            "bob",
            "--sender",
            "any",
            "--scram",
            "--messages-per-hour",
            "5",
            "--password-stdin",
        )
        == 0
    )
    assert run(config, monkeypatch, "password", "bob", "--scram", "--password-stdin", password="another horse") == 0
    assert (
        run(
            config,
            monkeypatch,
            "set",
            "bob",
            "--sender",
            "Example.org",
            "--sender",
            "b@x.example",
            "--messages-per-hour",
            "default",
        )
        == 0
    )
    assert run(config, monkeypatch, "disable", "alice@example.org") == 0
    users = read_users(file)
    bob = users.find("bob")
    assert bob is not None
    assert (bob.senders, bob.messages_per_hour) == (("example.org", "b@x.example"), None)
    assert matches(bob.verifier, "another horse")
    assert users.find("alice@example.org") is None
    assert run(config, monkeypatch, "enable", "alice@example.org") == 0
    capsys.readouterr()
    assert run(config, monkeypatch, "list") == 0
    assert capsys.readouterr().out == (
        "NAME               ENABLED  VERIFIER       MESSAGES/H  RECIPIENTS/H  SENDERS\n"
        "alice@example.org  yes      Argon2id       1000        10000\n    alice@example.org\n"
        "bob                yes      SCRAM-SHA-256  1000        10000\n    example.org, b@x.example\n"
    )
    assert run(config, monkeypatch, "list", "--json") == 0
    first, *_, end = capsys.readouterr().out.splitlines()
    assert json.loads(first)["verifier"] == "argon2id"
    assert json.loads(end)["end"]["count"] == 2
    assert run(config, monkeypatch, "remove", "bob") == 2
    assert run(config, monkeypatch, "remove", "bob", "--yes") == 0
    assert [user.name for user in read_users(file)] == ["alice@example.org"]
    assert os.listdir(file.parent) == ["users.jsonl"]


@pytest.mark.parametrize(
    ("words", "password", "what"),
    [
        (("add", "alice"), PASSWORD, "with --sender"),
        (("add", "al ice", "--sender", "any"), PASSWORD, "must be 1 to 128 letters"),
        (("add", "carol", "--sender", "a b"), PASSWORD, "must be an address"),
        (("add", "carol", "--sender", "any", "--messages-per-hour", "x"), PASSWORD, "whole number"),
        (("add", "carol", "--sender", "any", "--password-stdin"), "short", "8 or more characters"),
        (("add", "carol", "--sender", "any", "--password-stdin"), "x" * 1025, "at most 1024 bytes"),
        (("add", "carol", "--sender", "any", "--password-stdin"), "control\x07character", "SASLprep"),
        (("add", "carol", "--sender", "any"), PASSWORD, "give --password-stdin"),
        (("add", "bob", "--sender", "any", "--password-stdin"), PASSWORD, "exists already"),
        (("password", "carol", "--password-stdin"), PASSWORD, "does not exist"),
        (("disable", "carol"), PASSWORD, "does not exist"),
        (("set", "bob"), PASSWORD, "give --sender"),
        (("add", "carol", PASSWORD), PASSWORD, "unexpected argument"),
    ],
)
def test_a_mistake_changes_nothing(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    password: str,
    what: str,
) -> None:
    assert run(config, monkeypatch, "add", "bob", "--sender", "any", "--password-stdin") == 0
    file = config.parent / "home" / "users.jsonl"
    before = file.read_bytes()
    assert run(config, monkeypatch, *words, password=password) == 2
    told = capsys.readouterr().err
    assert what in told
    assert password not in told.replace(f"unexpected argument {PASSWORD!r}", "")
    assert file.read_bytes() == before


def test_a_damaged_file_is_listed_and_not_written_over(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = config.parent / "home" / "users.jsonl"
    assert run(config, monkeypatch, "add", "bob", "--sender", "any", "--password-stdin") == 0
    with file.open("a") as text:
        text.write("{\n")
    assert run(config, monkeypatch, "list") == 1
    output = capsys.readouterr()
    assert "bob" in output.out
    assert "users.jsonl:3: " in output.err
    assert run(config, monkeypatch, "disable", "bob") == 2
    assert "correct the file first" in capsys.readouterr().err


def test_check_config_names_the_line_of_a_fault(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Waypost starts with the other users, so the file of the configuration is still printed."""
    file = config.parent / "home" / "users.jsonl"
    assert run(config, monkeypatch, "add", "bob", "--sender", "any", "--password-stdin") == 0
    assert main(["check-config", "--config", str(config)]) == 0
    assert capsys.readouterr().err == ""
    file.write_text(file.read_text() + "x\n")
    assert main(["check-config", "--config", str(config)]) == 1
    said = capsys.readouterr()
    assert f"{file}:3: " in said.err
    assert "is valid. All settings" in said.out
    assert main(["check-config", "--config", str(config), "--json"]) == 1
    assert [f"{file}:3: " in fault for fault in json.loads(capsys.readouterr().out)["users_faults"]] == [True]
    assert main(["check-config", "--config", str(config), "--file-only"]) == 0
    assert capsys.readouterr().err == ""


def test_a_password_is_asked_for_twice_and_not_shown(config: Path) -> None:
    """On a terminal of its own."""
    words = ["user", "add", "a@x.example", "--config", str(config)]
    program = f"import sys; from mailcore.cli.main import main; sys.exit(main({words!r}))"
    shown = b""
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover
        os.execv(sys.executable, [sys.executable, "-c", program])
    timer = threading.Timer(60, os.kill, (pid, 9))
    timer.start()
    try:
        for prompt in (b"Password: ", b"again: "):
            while not shown.endswith(prompt):
                shown += os.read(terminal, 1)
            os.write(terminal, PASSWORD.encode() + b"\n")
        while True:
            try:
                shown += os.read(terminal, 1000)
            except OSError:
                break
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        timer.cancel()
        os.close(terminal)
    assert b"user a@x.example added" in shown
    assert PASSWORD.encode() not in shown
