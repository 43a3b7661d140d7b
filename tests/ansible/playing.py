"""Ansible as the tests start it: the collection where Ansible looks for one, and nothing of the user's own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import yaml

from tests.test_tidy import ROOT

__all__ = ["COLLECTION", "TOOLS", "defaults", "environment", "little_release", "play"]

COLLECTION = ROOT / "ansible"
TOOLS = Path(sys.executable).parent


def environment(place: Path) -> dict[str, str]:
    collections = place / "collections" / "ansible_collections" / "waypost"
    collections.mkdir(parents=True, exist_ok=True)
    if not (collections / "appliance").exists():
        (collections / "appliance").symlink_to(COLLECTION)
    configuration = place / "ansible.cfg"
    configuration.touch()
    return {
        "PATH": f"{TOOLS}:{os.environ['PATH']}",
        "HOME": str(place),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_HOME": str(place / "ansible"),
        "ANSIBLE_COLLECTIONS_PATH": str(place / "collections"),
        "ANSIBLE_CONFIG": str(configuration),
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=60s",  # by default it compresses, too: wheels are
        "ANSIBLE_HOST_KEY_CHECKING": "0",
    }


def defaults() -> dict[str, object]:
    """The collection's variables with their defaults, for an inventory."""
    found: dict[str, object] = {}
    for path in sorted(COLLECTION.glob("roles/*/defaults/main.yml")):
        found |= yaml.safe_load(path.read_text())
    return found


def little_release(place: Path, version: str) -> Path:
    """A file as make-release makes it, for each platform, of nothing but our own wheel. Its directory."""
    wheel = place / f"waypost-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in (ROOT / "mailcore").rglob("*.py"):
            archive.write(path, str(path.relative_to(ROOT)))
    sums = place / "SHA256SUMS"
    sums.write_text(f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}\n")
    for tag in ("cp311", "cp312", "cp313"):
        with tarfile.open(place / f"waypost-{version}-{tag}-x86_64.tar", "w") as release:
            for each in (wheel, sums):
                release.add(each, each.name)
    return place


def play(
    place: Path, playbook: str, inventory: dict[str, object], *options: str, timeout_s: float = 100.0
) -> subprocess.CompletedProcess[str]:
    """``ansible-playbook`` over that inventory. What came of it is the caller's to judge."""
    file = place / "inventory.json"
    file.write_text(json.dumps(inventory))
    command = [str(TOOLS / "ansible-playbook"), "--inventory", str(file), playbook, *options]
    return subprocess.run(
        command,
        env=environment(place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
