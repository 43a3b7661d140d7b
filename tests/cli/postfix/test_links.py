"""The links of the multi-call program: one list, and no file of another mail server is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from mailcore.cli.postfix.links import LINKS
from mailcore.cli.postfix.main import COMMANDS, main

OURS = "/opt/waypost/current/venv/bin/waypost-sendmail"
ANSIBLE = Path(__file__).parents[3] / "ansible/roles/waypost/vars/main.yml"


def run(*argv: str) -> int:
    return main([OURS, "links", *argv])


def test_every_command_has_a_link_and_ansible_the_same_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(Path(path).name for path in LINKS) == sorted(COMMANDS)
    assert yaml.safe_load(ANSIBLE.read_text())["waypost_command_paths"] == list(LINKS)
    assert run("--json") == 0
    assert json.loads(capsys.readouterr().out) == list(LINKS)


def test_links_are_made_once_follow_a_release_and_are_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [tmp_path / path.lstrip("/") for path in LINKS]
    for target in ("/opt/waypost/old/waypost-sendmail", OURS):
        assert run("--install", "--root", str(tmp_path), "--to", target) == 0
        assert capsys.readouterr().out.split() == [str(place) for place in places]
        assert {str(place.readlink()) for place in places} == {target}
    assert run("--install", "--root", str(tmp_path), "--to", OURS) == 0
    assert capsys.readouterr().out == ""
    assert run("--remove", "--root", str(tmp_path)) == 0
    assert not any(place.is_symlink() for place in places)


@pytest.mark.parametrize("is_link", [False, True])
def test_another_mail_server_keeps_its_files(tmp_path: Path, is_link: bool, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = tmp_path / "usr/bin/mailq"
    foreign.parent.mkdir(parents=True)
    if is_link:
        foreign.symlink_to("exim4")
    else:
        foreign.write_text("postfix")
    assert run("--install", "--root", str(tmp_path), "--to", OURS) == 69
    assert "another mail server" in capsys.readouterr().err
    assert run("--remove", "--root", str(tmp_path)) == 0
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == [foreign]
    assert foreign.is_symlink() == is_link


def test_wrong_words_change_nothing(tmp_path: Path) -> None:
    for words in (("--install", "--to", "/usr/bin/other"), ("--install", "--remove"), ("--root",)):
        assert run("--root", str(tmp_path), *words) == 64
    assert list(tmp_path.iterdir()) == []
