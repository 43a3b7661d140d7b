"""The portal's part, as on a server: its service's environment, its user, a PostgreSQL and a Redis that look at the user."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from appliance.reports.nights import redis_command, redis_server
from mailcore.doctor import portal
from mailcore.doctor.finding import Finding, State
from tests.appliance.common import test_postgresql
from tests.doctor.sample_host import found, sample_host
from tests.end_to_end.appliance import COMMAND
from tests.eventually import eventually_blocking
from tests.supervisor.test_users import as_root, entered

postgresql = test_postgresql.postgresql  # a fixture
PORTAL = "games"  # any user of this host that is not root


@pytest.fixture
def redis(place: Path) -> Iterator[str]:
    """With a password, on a socket that only the portal's user may open."""
    server = redis_server()
    assert server is not None
    socket = place / "waypost-redis" / "redis.sock"
    socket.parent.mkdir(mode=0o700)
    shutil.chown(socket.parent, PORTAL)
    command = redis_command(server, socket)
    with subprocess.Popen([*command, "--requirepass", "secret"], stdout=subprocess.DEVNULL) as process:
        eventually_blocking(socket.exists)
        shutil.chown(socket, PORTAL)
        yield f"redis+socket://:secret@{socket}?virtual_host=0"
        process.kill()


def signs_in_by_user(url: str) -> str:
    """PostgreSQL's peer, for the portal's role: the URL to sign in with. Root no longer may."""

    def psql(url: str, *statements: str) -> bool:
        options = [f"--command={each}" for each in statements]
        return not subprocess.run(
            ["psql", "-X", url, *options], capture_output=True, timeout=60, check=False
        ).returncode

    directory = Path(url.partition("host=")[2])
    directory.chmod(0o755)
    (directory / "data" / "pg_hba.conf").write_text(f"local all {PORTAL} peer\nlocal all all trust\n")
    assert psql(url, f"CREATE ROLE {PORTAL} LOGIN", f"CREATE DATABASE portal OWNER {PORTAL}", "SELECT pg_reload_conf()")
    of_the_portal = f"postgresql://{PORTAL}@{quote(str(directory), safe='')}/portal"
    eventually_blocking(lambda: not psql(of_the_portal, "SELECT 1"))
    return of_the_portal


@as_root
def test_root_asks_as_the_portals_user_with_what_its_service_has(postgresql: str, redis: str, place: Path) -> None:
    host = sample_host(place)
    host.settings.home.chmod(0o751)
    directory = host.settings.home / "portal"
    directory.mkdir(mode=0o700)
    shutil.chown(directory, PORTAL)
    (place / "portal.toml").write_text('home = "home"\n[portal]\npublic_url = "https://portal"\n')
    host.config.chmod(0o600)  # as the core's might be
    environment = (
        f"WAYPOST_CONFIG={place}/portal.toml\nDATABASE_URL='{signs_in_by_user(postgresql)}'\nREDIS_URL='{redis}'\n"
    )
    (place / "portal.env").write_text(environment)
    (place / "portal.env").chmod(0o600)
    command = entered(place, [str(COMMAND), "doctor", "--json", "--config", str(host.config)])
    given = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(command, capture_output=True, timeout=100, check=False, env=given, cwd="/root")
    findings = [
        each for each in msgspec.convert(json.loads(done.stdout)["findings"], list[Finding]) if each.subject == "portal"
    ]
    assert "missing migrations: " in found(findings, "database").found, "it has signed in"
    assert found(findings, "Redis").state is State.GOOD
    assert "secret" not in str(findings)
    assert not list(directory.iterdir()), "nothing is made by looking"


@as_root
def test_who_the_portal_is(place: Path) -> None:
    assert portal._its_user(place / "none") == {}
    assert portal._its_user(place) == {}, "root's own"
    entry = pwd.getpwnam(PORTAL)
    shutil.chown(place, PORTAL)
    told = portal._its_user(place)
    assert (told["user"], told["group"], told["cwd"]) == (entry.pw_uid, entry.pw_gid, "/")
    assert 0 not in told["extra_groups"]
    os.chown(place, 54_321, 54_322)
    assert portal._its_user(place) == {"user": 54_321, "group": 54_322, "extra_groups": [], "cwd": "/"}


def test_where_it_cannot_be_asked_the_remedy_is_one_of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    host = sample_host(tmp_path, units=tmp_path / "units")
    (finding,) = portal.look(host)
    assert finding.state is State.NOT_KNOWN
    assert f"WAYPOST_CONFIG={host.config} {sys.executable} -m django check" in finding.remedy
    host.units.mkdir()
    (host.units / "waypost-portal.service").touch()
    (finding,) = portal.look(host)
    assert finding.remedy == "Run: journalctl --unit waypost-portal"


def test_it_is_asked_with_the_python_of_its_own_version(tmp_path: Path) -> None:
    own = tmp_path / "0.2.0" / "python"
    own.parent.mkdir()
    own.write_text("""#!/bin/sh\necho '[{"what": "database", "state": "good", "found": "'$*'"}]'\n""")
    own.chmod(0o755)
    (tmp_path / "waypost-portal.service").write_text(f"[Service]\nUser=x\nExecStart={own} -m django serve\n")
    (finding,) = portal.look(sample_host(tmp_path, units=tmp_path))
    assert finding.found == "-m django doctor"
    own.unlink()
    assert portal._python(tmp_path / "waypost-portal.service") == sys.executable


def test_its_services_environment_is_closed_to_this_user(tmp_path: Path) -> None:
    host = sample_host(tmp_path)
    (tmp_path / "portal.env").mkdir()  # root can read everything else
    (finding,) = portal.look(host)
    assert finding.state is State.NOT_KNOWN
    assert "portal.env" in finding.found
    assert finding.remedy


def test_which_configuration_is_the_portals_stands_in_its_environment(tmp_path: Path) -> None:
    """What is in the shell may be of another; a database that is named there is meant, as with a backup."""
    shell = {"WAYPOST_CONFIG": "of another", "DATABASE_URL": "sqlite:///given", "WAYPOST_SECRET_KEY": "", "TZ": "UTC"}
    service = {
        "WAYPOST_CONFIG": "/etc/waypost/portal.toml",
        "DATABASE_URL": "sqlite:///its",
        "REDIS_URL": "redis://its",
    }
    told = portal._environment(tmp_path / "waypost.toml", service, shell)
    assert told["RES_OPTIONS"] == portal.RES_OPTIONS, "a dead name server is not asked for long"
    assert told["WAYPOST_CONFIG"] == "/etc/waypost/portal.toml"
    assert (told["DATABASE_URL"], told["REDIS_URL"], told["TZ"]) == ("sqlite:///given", "redis://its", "UTC")
    assert told["WAYPOST_SECRET_KEY"], "none is made in the portal's directory"
    assert portal._environment(tmp_path / "waypost.toml", {}, shell)["WAYPOST_CONFIG"] == f"{tmp_path}/waypost.toml"
