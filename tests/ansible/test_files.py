"""The table of files in docs/install.md says what the playbook and the core set: owner, group and mode of each."""

from __future__ import annotations

import grp
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import yaml

from mailcore.config.load import load_text
from mailcore.pickup.pickup import OPEN
from mailcore.queue.from_maildrop import DIRECTORY
from mailcore.supervisor import users
from mailcore.supervisor.users import User, Users
from tests.ansible.playing import COLLECTION
from tests.test_tidy import ROOT

HOME, LOG, RUN = "/var/lib/waypost", "/var/log/waypost", "/run/waypost"
PLACES = {"waypost_home": HOME, "waypost_log": LOG, "waypost_run": RUN}
GROUPS = ("waypost-mail", "waypost-receiver", "waypost-deliverer", "waypost-control")
ROW = re.compile(r"\| `(/[^`]+)` \| ([a-z-]+), ([a-z-]+) \| ([0-7]{4}) \|")
ALL_ON = """
home = "/var/lib/waypost"
run_directory = "/run/waypost"
log_directory = "/var/log/waypost"
[control]
group = "waypost-control"
[export]
enabled = true
[greylist]
enabled = true
[tlsrpt]
sender = "tls@example.org"
organization = "Example"
[transports.smtp]
tls = "mta-sts"
"""


class Access(NamedTuple):
    owner: str
    group: str
    mode: int


def table() -> dict[str, Access]:
    rows = ROW.findall((ROOT / "docs" / "install.md").read_text())
    found = {path: Access(owner, group, int(mode, 8)) for path, owner, group, mode in rows}
    assert len(found) == len(rows)
    return found


def general(path: str) -> str:
    """The path as the table has it: with N, XX or * for what differs."""
    path = re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: PLACES.get(match[1], "*"), path)
    path = re.sub(r"/(etc/waypost/dkim)/.*\.pem", r"/\1/*.pem", path)
    return re.sub(
        r"/spool/([0-9a-f]{2}|\*|\{\{.*\}\})$", "/spool/XX", re.sub(r"incoming\.(\d+|\*)$", "incoming.N", path)
    )


def tasks_of(path: Path) -> Iterator[dict[str, Any]]:
    for task in yaml.safe_load(path.read_text()):
        yield from task.get("block", [])
        yield task


def of_tasks() -> dict[str, Access]:
    """What tasks set below /etc/waypost and in the places of Waypost."""
    found: dict[str, Access] = {}
    for path in sorted(COLLECTION.glob("roles/*/tasks/*.yml")):
        for task in tasks_of(path):
            for module in ("file", "copy", "template"):
                values = task.get(f"ansible.builtin.{module}")
                if not values or "owner" not in values or "mode" not in values:
                    continue
                loop = task.get("loop", [""])
                for item in loop if isinstance(loop, list) else [""]:
                    found |= dict([_made(values, item)])
    places = ("/etc/waypost", HOME, LOG, RUN)
    return {path: access for path, access in found.items() if path.startswith(places)}


def _made(values: dict[str, Any], item: Any) -> tuple[str, Access]:
    def filled(text: str) -> str:
        if isinstance(item, dict):
            for key, value in item.items():
                text = text.replace(f"{{{{ item.{key} }}}}", str(value))
        return text.replace("{{ item }}", str(item))

    path, owner, group, mode = (
        filled(str(values.get(key, values.get("dest")))) for key in ("path", "owner", "group", "mode")
    )
    return general(path), Access(owner, group, int(mode, 8) if mode.isdecimal() else 0)


def of_tmpfiles() -> dict[str, Access]:
    lines = (COLLECTION / "roles/core/templates/tmpfiles.j2").read_text().splitlines()
    rows = [re.fullmatch(r"d (.+) ([0-7]{4}) ([a-z-]+) ([a-z-]+) -", line) for line in lines if line.startswith("d ")]
    assert all(rows)
    return {general(row[1]): Access(row[3], row[4], int(row[2], 8)) for row in rows if row is not None}


def of_the_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Access]:
    """What the supervisor sets when it starts, with every directory in use."""
    found: dict[str, Access] = {}
    number = {name: index for index, name in enumerate(GROUPS, 1)}
    monkeypatch.setattr(
        users,
        "_give",
        lambda path, group, mode: found.update({general(str(path)): Access("waypost", GROUPS[group - 1], mode)}),
    )
    monkeypatch.setattr(grp, "getgrnam", lambda name: SimpleNamespace(gr_gid=number[name]))
    settings = load_text(tmp_path / "waypost.toml", ALL_ON)
    receiver, deliverer = (User(name, 1, number[name], ()) for name in GROUPS[1:3])
    Users(receiver, deliverer, number["waypost-mail"]).prepare(settings)
    return found


def test_the_table_says_what_the_playbook_and_the_core_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = of_the_core(tmp_path, monkeypatch)
    tasks, tmpfiles = of_tasks(), of_tmpfiles()
    assert {path for path in tasks if not path.startswith(HOME)} >= {
        "/etc/waypost/tls/key.pem",
        "/etc/waypost/dkim",
        LOG,
    }
    assert (
        {*tmpfiles, *tasks} >= core.keys() >= {f"{HOME}/{name}" for name in ("receiver", "mta-sts", "tlsrpt", "events")}
    )
    documented = table()
    for made in (tasks, tmpfiles, core):
        for path, access in made.items():
            assert documented.get(path) == access, path
    assert documented.keys() == {*tasks, *tmpfiles}
    assert documented[f"{HOME}/{DIRECTORY}"] == Access("waypost", "waypost", OPEN)


def test_the_core_needs_no_bit_that_its_unit_may_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under RestrictSUIDSGID a directory with the setgid bit must be there before the core starts."""
    assert "RestrictSUIDSGID=yes" in (COLLECTION / "roles/core/templates/waypost-core.service.j2").read_text()
    made = {**of_tasks(), **of_tmpfiles()}
    needed = {path: access for path, access in of_the_core(tmp_path, monkeypatch).items() if access.mode & 0o6000}
    assert needed
    assert {path: made.get(path) for path in needed} == needed
