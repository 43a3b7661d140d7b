"""Before a portal gets the database of [nodes], Ansible hears whether it can, and which users would be left behind."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
import pytest

from appliance.common.before_sharing import Question
from appliance.common.nodes_database import SCHEMA_OF
from tests.appliance.common.test_moving_in import FILL, run
from tests.appliance.common.test_nodes_database import administrator, django, home_of, place_of
from tests.appliance.common.test_postgresql import postgresql
from tests.test_tidy import ROOT

__all__ = ["administrator", "postgresql"]  # fixtures

KEY = "one key of both, which is long enough for Django's own checks"
OTHER_KEY = "another key, which is as long as the one that the others have"


def asked(home: Path, host: str, key: str = KEY, **more: Any) -> dict[str, Any]:
    question = Question(
        database=f"host=/nowhere,{host} port=5432,5432 dbname=mail user=waypost",
        node=home.name,
        password_file=str(home / "portal-password"),
        key=key,
        former=str(home / "portal" / "portal.sqlite3"),
        environment=str(home / "portal.env"),
    )
    done = subprocess.run(
        [sys.executable, "-m", "appliance.common.before_sharing"], cwd=ROOT, text=True, capture_output=True,
        input=json.dumps(asdict(question) | more), timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_database_of_the_nodes_is_looked_at(administrator: str, tmp_path: Path) -> None:
    a, b = (home_of(tmp_path, node, place_of(administrator)) for node in ("a", "b"))
    host = place_of(administrator)
    fault = asked(a, host)["fault"]
    assert "the user waypost_portal cannot use the database of [nodes]" in fault
    assert "CREATE ROLE waypost_portal LOGIN PASSWORD '…'" in fault
    assert "secret-1" not in fault
    with psycopg.connect(administrator, autocommit=True) as connection:
        connection.execute("CREATE ROLE waypost_portal LOGIN")
        assert asked(a, host)["fault"] == SCHEMA_OF
        connection.execute("CREATE SCHEMA waypost_portal AUTHORIZATION waypost_portal")
    empty = {"fault": "", "users": 0, "other_key_at": [], "left_behind": 0, "elsewhere": False}
    assert asked(a, host) == empty
    assert asked(a, host, key="") == empty, "the first node makes a key"

    assert django(a, "-m", "django", "first_password").returncode == 0
    assert asked(b, host) == {**empty, "users": 1}
    assert asked(b, host, OTHER_KEY)["other_key_at"] == ["a"]
    assert asked(b, host, "")["other_key_at"] == ["a"], "a node that was not asked has the key"
    assert asked(a, host, OTHER_KEY)["other_key_at"] == ["a"], "second factors are encrypted with the key of before"
    assert "database_password_file" in asked(a, host, password_file=str(tmp_path / "nothing"))["fault"]


def test_users_of_a_former_database_are_left_behind_until_they_are_moved_in(administrator: str, tmp_path: Path) -> None:
    host = place_of(administrator)
    with psycopg.connect(administrator, autocommit=True) as connection:
        connection.execute("CREATE ROLE waypost_portal LOGIN")
        connection.execute("CREATE SCHEMA waypost_portal AUTHORIZATION waypost_portal")
    home = home_of(tmp_path, "a", host)
    former = home / "portal" / "portal.sqlite3"
    settings = (home / "waypost.toml").read_text()
    (home / "waypost.toml").write_text(settings.replace('database_url = "nodes"', ""))
    assert run(home, "", "-m", "django", "first_password").returncode == 0
    assert former.exists()
    assert asked(home, host)["left_behind"] == 0, "the first administrator has never signed in"
    with contextlib.closing(sqlite3.connect(former)) as old:
        old.execute("UPDATE auth_user SET last_login = '2026-01-01 00:00:00'")
        old.commit()
    assert asked(home, host)["left_behind"] == 1
    assert run(home, "", "-c", FILL, "ina,tom", "0").returncode == 0
    assert asked(home, host)["left_behind"] == 3
    (home / "waypost.toml").write_text(settings)
    for words in (("migrate", "-v", "0"), ("move_in", str(former))):
        done = django(home, "-m", "django", *words)
        assert done.returncode == 0, done.stderr
    answer = asked(home, host)
    assert (answer["users"], answer["left_behind"]) == (3, 0)
    assert asked(home, host, node="b")["left_behind"] == 3, "it was another node that moved in"


@pytest.mark.parametrize(
    ("line", "elsewhere"),
    [
        ("DATABASE_URL=postgresql://waypost-portal@%2Frun%2Fpostgresql/waypost", True),
        ("DATABASE_URL='postgres://u:p@h/n'", True),
        ("DATABASE_URL=sqlite:////var/lib/waypost/portal/portal.sqlite3", False),
        ("", False),
    ],
)
def test_a_postgresql_of_its_own_is_said(line: str, elsewhere: bool, tmp_path: Path) -> None:
    home = home_of(tmp_path, "a", "/nowhere")
    (home / "portal.env").write_text(f"# passwords\n{line}\n")
    assert asked(home, "/nowhere")["elsewhere"] is elsewhere


def test_a_former_database_that_cannot_be_read_is_a_fault(administrator: str, tmp_path: Path) -> None:
    host = place_of(administrator)
    with psycopg.connect(administrator, autocommit=True) as connection:
        connection.execute("CREATE ROLE waypost_portal LOGIN")
        connection.execute("CREATE SCHEMA waypost_portal AUTHORIZATION waypost_portal")
    home = home_of(tmp_path, "a", host)
    (home / "portal" / "portal.sqlite3").write_bytes(b"torn" * 1024)
    assert "the former database of the portal cannot be read" in asked(home, host)["fault"]
