"""The collection is well formed, and a wrong variable stops before anything is changed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.playing import COLLECTION, TOOLS, environment, little_release, play
from tests.test_tidy import ROOT

SITE = "waypost.appliance.site"
RIGHT: dict[str, Any] = {
    "waypost_version": "0.0.1",
    "ansible_connection": "local",
    "ansible_python_interpreter": sys.executable,
}


@pytest.fixture(scope="module", autouse=True)
def dist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the release lies; as small as one can be."""
    place = tmp_path_factory.mktemp("dist")
    RIGHT["waypost_release_directory"] = str(little_release(place, "0.0.1"))
    yield place
    del RIGHT["waypost_release_directory"]


def inventory(**variables: object) -> dict[str, Any]:
    return {"waypost": {"hosts": {"mail1": {**RIGHT, **variables}}}}


def checked(place: Path, **variables: object) -> str:
    """What the play that only looks says, on a host that is this machine."""
    return play(place, SITE, inventory(**variables), "--tags", "never-anything", "--check").stdout


@pytest.mark.long
def test_the_linter_has_nothing_to_say_in_its_strictest_profile(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(TOOLS / "ansible-lint"), "--offline", "--nocolor", "--profile", "production"],
        cwd=COLLECTION,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("playbook", [SITE, "waypost.appliance.uninstall", "waypost.appliance.queue_database"])
def test_the_playbook_reads_well(tmp_path: Path, playbook: str) -> None:
    done = play(tmp_path, playbook, inventory(), "--syntax-check")
    assert done.returncode == 0, done.stdout


def options_of(role: str) -> dict[str, Any]:
    read = (COLLECTION / f"roles/{role}/meta/argument_specs.yml").read_text()
    found: dict[str, Any] = yaml.safe_load(read)["argument_specs"]["main"]["options"]
    return found


@pytest.mark.parametrize(("role", "needed"), [("waypost", {"waypost_version"}), ("queue_database", set())])
def test_each_variable_has_a_type_and_a_default_that_is_none_but_the_version(role: str, needed: set[str]) -> None:
    options = options_of(role)
    defaults = yaml.safe_load((COLLECTION / f"roles/{role}/defaults/main.yml").read_text())
    assert set(options) == {*needed, *defaults}
    assert all({"type", "description"} <= set(option) for option in options.values())


@pytest.mark.parametrize("role", ["waypost", "queue_database"])
def test_what_is_secret_is_not_shown(role: str) -> None:
    options = options_of(role)
    secret = {name for name in options if "password" in name or name.endswith("_url") or name == "waypost_portal_key"}
    assert secret == {name for name, option in options.items() if option.get("no_log")}


# A host for each that is told at the same step: a play stops at the first step that fails anywhere.
Step = list[tuple[dict[str, object], list[str]]]
TYPES: Step = [
    ({"waypost_database": "oracle"}, ["waypost_database", "sqlite, postgresql, other"]),
    ({"waypost_receiver_processes": "many"}, ["waypost_receiver_processes", "int"]),
]
NAMES: Step = [
    ({"waypost_reciever_processes": 2}, ["waypost_reciever_processes", "no variable", "waypost_receiver_processes"]),
]
LIMITS: Step = [
    ({"waypost_deliverer_processes": 65}, ["waypost_deliverer_processes", "between 1 and 64"]),
    ({"waypost_tls_key": "a.key"}, ["waypost_tls_certificate", "neither"]),
    ({"waypost_portal": False}, ["waypost_reports", "waypost_portal is false"]),
]
SHARED: Step = [({"waypost_database": "nodes"}, ["waypost_database is nodes", "is not in the group waypost_nodes"])]
RELEASE: Step = [({"waypost_version": "0.0.7"}, ["waypost_version 0.0.7", "there is no file", "./make-release"])]
CORE: Step = [
    ({"waypost_relay_networks": ["0.0.0.0/0"]}, ["waypost_relay_networks", "open relay"]),
    ({"waypost_routes": {"*": "pigeon:x"}}, ["waypost_routes", "pigeon"]),
    (
        {"waypost_settings": {"scheduler": {"maximal_queue_lifetime": "abc"}}},
        ["waypost_settings is wrong: [scheduler] maximal_queue_lifetime", "must be a number between"],
    ),
]


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(TYPES, id="types", marks=pytest.mark.long),  # Ansible's own check
        pytest.param(NAMES, id="names", marks=pytest.mark.long),
        pytest.param(LIMITS, id="limits", marks=pytest.mark.long),
        pytest.param(SHARED, id="shared", marks=pytest.mark.long),
        pytest.param(RELEASE, id="release", marks=pytest.mark.long),
        pytest.param(CORE[:1], id="open relay"),
        pytest.param(CORE[1:], id="core", marks=pytest.mark.long),
    ],
)
def test_wrong_variables_stop_with_their_names_and_what_is_allowed(tmp_path: Path, step: Step) -> None:
    hosts = {f"mail{number}": {**RIGHT, **wrong} for number, (wrong, _) in enumerate(step)}
    told = play(tmp_path, SITE, {"waypost": {"hosts": hosts}}, "--check").stdout
    assert told.count("failed=1") == len(step), told
    assert told.count("changed=0") == len(step)
    assert "PLAY [Install]" not in told
    assert all(word in told for _, said in step for word in said), told


@pytest.mark.long
def test_right_variables_pass(tmp_path: Path) -> None:
    told = checked(tmp_path)
    assert "failed=0" in told
    assert "PLAY [Install]" in told


def test_the_documented_ansible_is_the_tested_one() -> None:
    (documented,) = re.findall(r"ansible-core==(\S+)", (ROOT / "docs/install.md").read_text())
    (tested,) = re.findall(r"^ansible-core==(\S+)", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE)
    assert documented == tested
