"""One key for the portals of all nodes: which one is taken, and when nothing may be changed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.playing import COLLECTION, defaults, play

TASKS = yaml.safe_load((COLLECTION / "roles/portal/tasks/nodes.yml").read_text())
MOVE = yaml.safe_load((COLLECTION / "roles/portal/tasks/move_in.yml").read_text())
PLAY = """
- name: Judge
  hosts: all
  gather_facts: false
  vars_files: "{{ collection }}/roles/portal/vars/main.yml"
  tasks:
    - name: Write
      ansible.builtin.copy:
        content: "{{ {'key': portal_key, 'own': portal_own_key, 'shared': portal_is_shared, 'moves': portal_moves} | to_json }}"
        dest: "{{ place }}/{{ inventory_hostname }}.json"
        mode: "0600"
      no_log: true
"""
NOTHING: dict[str, Any] = {"fault": "", "users": 0, "other_key_at": [], "left_behind": 0, "elsewhere": False}
CASES: dict[str, tuple[dict[str, str], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # lines of the nodes, variables, what was found, what comes of it
    "fresh": ({}, {}, {}, {"key": "", "own": "", "shared": False, "moves": False}),
    "first": ({"mx1": "own A"}, {}, {}, {"key": "A", "own": "", "shared": False}),
    "both": ({"mx1": "own A", "both": "own B"}, {}, {}, {"key": "A", "own": "B", "shared": False}),
    "rebuilt": ({"mx1": "own A", "rebuilt": "", "mx3": "shared C"}, {}, {}, {"key": "C", "own": ""}),
    "member": ({"mx1": "shared A", "member": "shared A"}, {}, {}, {"key": "A", "own": "A", "shared": True}),
    "given": ({"mx1": "own A"}, {"waypost_portal_key": "K"}, {}, {"key": "K"}),
    "silent": ({"mx1": "unreachable", "silent": "own B"}, {}, {}, {"key": "B", "own": "B"}),
    "moving": ({}, {"waypost_portal_former": "move_in"}, {"left_behind": 2}, {"moves": True}),
    "moved": ({}, {"waypost_portal_former": "move_in"}, {"left_behind": 0}, {"moves": False}),
    "leaving": ({}, {"waypost_portal_former": "leave"}, {"left_behind": 2}, {"moves": False}),
}


def read(node: str, line: str) -> dict[str, Any]:
    return {"item": node, "unreachable": True} if line == "unreachable" else {"item": node, "stdout": line}


def test_the_key_is_that_of_the_portals_that_share_it_and_else_that_of_the_first_node(tmp_path: Path) -> None:
    (tmp_path / "judge.yml").write_text(PLAY)
    hosts = {
        name: {
            **defaults(), "collection": str(COLLECTION), "place": str(tmp_path), "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable, **variables,
            "portal_keys": {"results": [read(node, line) for node, line in lines.items()]},
            "portal_look": {"stdout": json.dumps(NOTHING | found)},
        }
        for name, (lines, variables, found, _) in CASES.items()
    }  # fmt: skip
    done = play(tmp_path, str(tmp_path / "judge.yml"), {"all": {"hosts": hosts}})
    assert done.returncode == 0, done.stdout
    for name, (_, _, _, wanted) in CASES.items():
        judged = json.loads((tmp_path / f"{name}.json").read_text())
        assert judged == judged | wanted, name


@pytest.mark.parametrize("what", ["shared", "own", "nothing"])
def test_a_key_is_read_with_whether_its_portal_shares_the_database(what: str, tmp_path: Path) -> None:
    (task,) = [task for task in TASKS if task.get("register") == "portal_keys"]
    script = task["ansible.builtin.command"]["argv"][2].replace("/etc/waypost", str(tmp_path))
    settings = '"database_url" = "nodes"\n' if what == "shared" else '"public_url" = "https://x"\n'
    (tmp_path / "portal.toml").write_text(f"[portal]\n{settings}")
    if what != "nothing":
        (tmp_path / "secret.key").write_text("A-key_1")
    done = subprocess.run(
        ["/bin/sh", "-c", script, str(tmp_path / "secret.key")], capture_output=True, text=True, check=False
    )
    assert done.stdout == ("" if what == "nothing" else f"{what} A-key_1")


def test_nothing_of_the_portal_changes_before_its_users_and_its_key_were_looked_at() -> None:
    names = [task["name"] for task in TASKS]
    last = max(index for index, task in enumerate(TASKS) if "ansible.builtin.assert" in task)
    assert names[last] == "Check that no users are left behind"
    before = {name for task in TASKS[:last] for name in task if name.startswith("ansible.builtin.")}
    assert before == {"ansible.builtin.copy", "ansible.builtin.command", "ansible.builtin.assert"}
    (copied,) = [task["ansible.builtin.copy"] for task in TASKS[:last] if "ansible.builtin.copy" in task]
    assert copied["dest"] == "/etc/waypost/portal-password"
    portal = [task["name"] for task in yaml.safe_load((COLLECTION / "roles/portal/tasks/portal.yml").read_text())]
    assert portal.index("Prepare the portal for the database of all nodes") < portal.index(
        "Write the portal's configuration"
    )
    assert portal.index("Move into the database of all nodes") < portal.index("Make the first administrator's password")


def test_no_task_shows_a_key_or_a_password() -> None:
    for file in ("portal/tasks/nodes.yml", "portal/tasks/move_in.yml", "queue_database/tasks/password.yml"):
        for task in yaml.safe_load((COLLECTION / "roles" / file).read_text()):
            secret = json.dumps({name: value for name, value in task.items() if name not in ("when", "vars")})
            has_secret = any(f"{{{{ {name}" in secret for name in SECRETS)
            assert not has_secret or task.get("no_log") is True, task["name"]
            command = json.dumps(task.get("ansible.builtin.command", {}).get("argv", []))
            assert not any(f"{{{{ {name}" in command for name in SECRETS), "a list of processes would show it"


SECRETS = (
    "portal_key",
    "waypost_portal_key",
    "waypost_database_password }}",
    "queue_database_secret",
    "portal_question",
)
