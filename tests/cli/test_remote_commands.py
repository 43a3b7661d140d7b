"""Every command works with ``--remote``, and is compared with the same on the host, or refuses with a reason."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from mailcore.cli.commands import COMMANDS
from mailcore.cli.main import main
from mailcore.cli.remote_commands import ANYWHERE, LOCAL, WORKS
from mailcore.cli.tree import command_tree
from tests.cli.remote_table import ALIKE, CHANGING, KEEPING, SAME, SHOWN_LIVE

LEAVES = [" ".join(each.words[1:]) for each in command_tree(COMMANDS).walk() if not each.children]


def is_local(command: str) -> bool:
    return any(f"{command} ".startswith(f"{name} ") for name in LOCAL)


def test_every_command_works_remotely_or_refuses_by_a_reason() -> None:
    undecided = [each for each in LEAVES if (each in WORKS) + (each.split()[0] in ANYWHERE) + is_local(each) != 1]
    assert not undecided, "a new command: say in mailcore/cli/remote_commands.py whether it works with --remote"
    assert set(LEAVES) >= WORKS
    assert all(any(f"{each} ".startswith(f"{name} ") for each in LEAVES) for name in LOCAL)


def test_every_command_that_works_is_compared_with_the_same_on_the_host() -> None:
    lines = (*SAME, *ALIKE, *CHANGING, *(line for line, *_ in KEEPING))
    compared = {each for each in WORKS for line in lines if f"{line} ".startswith(f"{each} ")}
    assert compared | set(SHOWN_LIVE) == WORKS


@pytest.mark.parametrize("command", [each for each in LEAVES if is_local(each)])
def test_a_command_of_the_host_refuses_and_does_nothing(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("wpt_x")
    arguments = {
        "identity adopt": ["queue"], "restore": ["x"], "backup": ["x"], "report": ["2026-11-21"],
    }.get(command, [])  # fmt: skip
    status = main(["--remote", "http://127.0.0.1:1", "--token-file", str(token), *command.split(), *arguments])
    said = capsys.readouterr()
    assert (status, said.out) == (2, ""), said
    assert "does not work with --remote" in said.err or "are required" in said.err or "needs" in said.err, said
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


@pytest.mark.parametrize(
    "command",
    [
        "user list", "user add kim@a.example --password-stdin", "user disable kim", "user remove kim --yes",
        "user password kim --password-stdin", "user set kim --sender any", "dkim new a.example s1 --key key.pem",
        "certificate request a.example", "kept list", "events",
    ],
)  # fmt: skip
def test_without_the_other_waypost_no_file_of_this_host_is_changed(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the host the file of users is changed when the core is away; here it would be another Waypost's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "waypost.toml").write_text('home = "home"\n')
    (tmp_path / "home").mkdir()
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("wpt_x")
    before = sorted(str(each) for each in tmp_path.rglob("*"))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a good password\n")))
    status = main(["--remote", "http://127.0.0.1:1", "--token-file", str(token), *command.split()])
    assert status == (2 if "--key" in command else 3), capsys.readouterr()
    assert sorted(str(each) for each in tmp_path.rglob("*")) == before
