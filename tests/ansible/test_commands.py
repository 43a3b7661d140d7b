"""The commands of mail servers: linked if asked, refused if another mail server owns them, and removed again."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.playing import COLLECTION, defaults, play

PLAY = """
- name: Link
  hosts: all
  gather_facts: false
  tasks:
    - name: Link
      ansible.builtin.include_tasks: "{{ collection }}/roles/core/tasks/commands.yml"
"""


def host(place: Path, wanted: bool) -> dict[str, Any]:
    place.mkdir(exist_ok=True)
    return {
        **defaults(),
        "collection": str(COLLECTION), "waypost_prefix": str(place / "opt"), "waypost_mail_commands": wanted,
        "waypost_command_paths": [str(place / "sendmail"), str(place / "mailq")],
        "ansible_connection": "local", "ansible_python_interpreter": sys.executable,
    }  # fmt: skip


@pytest.mark.long
def test_links_are_made_and_removed_and_never_those_of_another_mail_server(tmp_path: Path) -> None:
    (tmp_path / "link.yml").write_text(PLAY)
    places = {name: tmp_path / name for name in ("fresh", "removed", "with_postfix", "with_link", "off")}
    hosts = {name: host(place, name not in ("removed", "off")) for name, place in places.items()}
    ours = places["removed"] / "opt/current/venv/bin/waypost-sendmail"
    (places["removed"] / "mailq").symlink_to(ours)
    (places["with_postfix"] / "sendmail").write_text("postfix")
    (places["with_link"] / "mailq").symlink_to("/usr/sbin/exim4")
    (places["off"] / "sendmail").write_text("postfix")
    (places["off"] / "mailq").symlink_to("/usr/sbin/exim4")
    done = play(tmp_path, str(tmp_path / "link.yml"), {"all": {"hosts": hosts}})
    assert len(re.findall(r"FAILED! =>.*belongs to another mail server", done.stdout)) == 2, done.stdout
    for name in ("sendmail", "mailq"):
        assert (places["fresh"] / name).readlink() == places["fresh"] / "opt/current/venv/bin/waypost-sendmail"
    assert sorted(path.name for path in places["removed"].iterdir()) == []
    for name in ("with_postfix", "off"):
        assert (places[name] / "sendmail").read_text() == "postfix"
    assert not (places["with_postfix"] / "mailq").exists()
    for name in ("with_link", "off"):
        assert str((places[name] / "mailq").readlink()) == "/usr/sbin/exim4"
