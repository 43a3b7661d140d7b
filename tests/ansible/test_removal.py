"""Old releases go, and the uninstall playbook removes all that the other roles make."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.playing import COLLECTION, defaults, play

ROLE = COLLECTION / "roles/waypost/tasks"
KEPT = (
    "/etc/waypost/dkim",
    "/etc/waypost/tls",
    "/etc/waypost/portal.env",
    "/etc/waypost/redis.password",
    "/etc/waypost/database-password",
    "/etc/waypost/portal-password",
    "/etc/waypost/database-authority.pem",
    "/etc/waypost/first-password",
)
NOT_OURS = ("/etc/localtime", "/etc/nginx/sites-enabled/default", "/usr/sbin", "/etc/systemd/system/waypost-")
PRUNE = """
- name: Prune
  hosts: all
  gather_facts: false
  tasks:
    - name: Prune
      ansible.builtin.include_tasks: "{{ collection }}/roles/waypost/tasks/prune.yml"
"""


def installed(place: Path, kept: int, *releases: str, core: str = "0.5.0", portal: str = "0.5.0") -> dict[str, Any]:
    """Installs releases one after another; returns the variables of a host that has them."""
    prefix = place / "opt"
    prefix.mkdir(parents=True)
    for age, name in enumerate(releases):
        (prefix / name / "venv").mkdir(parents=True)
        if not name.startswith("half"):
            (prefix / name / "installed").write_text(name)
            os.utime(prefix / name / "installed", (1e9 + age, 1e9 + age))
    (prefix / "current").symlink_to(prefix / core)
    # Those of the role, which include_tasks does not load. As variables of the host they leave the prefix to the test.
    ours = yaml.safe_load((ROLE.parent / "vars/main.yml").read_text())
    return {
        **defaults(), **ours,
        "collection": str(COLLECTION), "waypost_prefix": str(prefix), "waypost_releases_kept": kept,
        "waypost_version": core, "waypost_core_version": core, "waypost_portal_version": portal,
        "ansible_connection": "local", "ansible_python_interpreter": sys.executable,
    }  # fmt: skip


@pytest.mark.long
def test_the_newest_releases_stay_for_a_roll_back_and_one_in_use_however_old_it_is(tmp_path: Path) -> None:
    hosts = {
        "newest": installed(tmp_path / "newest", 2, "0.1.0", "0.2.0", "0.10.0", "half", "0.4.0", "0.5.0"),
        "in-use": installed(tmp_path / "in-use", 0, "0.1.0", "0.2.0", "0.4.0", "0.5.0", core="0.1.0", portal="0.4.0"),
    }
    (tmp_path / "prune.yml").write_text(PRUNE)
    done = play(tmp_path, str(tmp_path / "prune.yml"), {"all": {"hosts": hosts}})
    assert done.returncode == 0, done.stdout
    left = {name: sorted(path.name for path in (tmp_path / name / "opt").iterdir()) for name in hosts}
    assert left["newest"] == ["0.10.0", "0.4.0", "0.5.0", "current"], "the newest by installation, and no torn one"
    assert left["in-use"] == ["0.1.0", "0.4.0", "current"]


def test_only_a_whole_play_prunes() -> None:
    """With --tags core, the portal may still run from a release that the variables no longer name."""
    plays = yaml.safe_load((COLLECTION / "playbooks/site.yml").read_text())
    tags = {tag for each in plays[:-1] for role in each["roles"] for tag in role.get("tags", [])}
    (task,) = plays[-1]["tasks"]
    assert plays[-1].get("tags") is None
    assert not tags & set(task["tags"])


def made(node: Any) -> Iterator[str]:
    """The paths of files and directories that a role makes."""
    if isinstance(node, list):
        for each in node:
            yield from made(each)
    elif isinstance(node, dict):
        state = node.get("state")
        for key in ("dest", "path", "creates"):
            if isinstance(node.get(key), str) and state != "absent":
                yield node[key]
        for each in node.values():
            yield from made(each)


def test_the_uninstall_removes_all_that_was_made() -> None:
    tasks = (ROLE / "uninstall.yml").read_text()
    removed = re.findall(r"^      - (/\S+)$", tasks, re.MULTILINE)
    assert len(removed) > 10
    left = []
    for file in sorted(COLLECTION.glob("roles/*/tasks/*.yml")):
        if file.name in ("uninstall.yml", "prune.yml", "absent.yml"):
            continue
        if file.parent.parent.name == "queue_database":  # it keeps the mail of all nodes, and other hosts may need it
            continue
        for path in made(yaml.safe_load(file.read_text())):
            ours = path.startswith(("/etc", "/usr", "/var", "/opt"))
            if ours and not path.startswith((*removed, *KEPT, *NOT_OURS)) and "/" in path.removeprefix("/etc/waypost"):
                left.append(f"{file.parent.parent.name}: {path}")
    allowed = re.compile(r"(\.service\.d|journald\.conf\.d)$|^/usr/local/share/|\{\{ item \}\}$")
    assert [each for each in left if not allowed.search(each.partition(": ")[2])] == []


def test_the_uninstall_knows_each_service() -> None:
    units = set(re.findall(r"- (waypost-\S+\.(?:service|socket))", (ROLE / "uninstall.yml").read_text()))
    templates = {path.stem for path in COLLECTION.glob("roles/*/templates/waypost-*.j2")}
    assert units == templates


def test_data_are_deleted_only_if_asked_and_never_with_mail_in_the_queue() -> None:
    tasks = yaml.safe_load((ROLE / "uninstall.yml").read_text())
    first, last = tasks[0], tasks[-1]
    assert first["when"] == last["when"] == "waypost_delete_data | bool"
    assert "(waypost_queued.stdout | from_json).messages == 0" in first["block"][-1]["ansible.builtin.assert"]["that"]
    for task in tasks[1:-1]:
        text = json.dumps(task)
        assert "waypost_home" not in text
        assert not any(kept in text for kept in KEPT)
