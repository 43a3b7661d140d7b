"""``[portal] database_url = "nodes"``: a schema and a role of its own in the database of the nodes, with several members.

What the portal shows while that database is away.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from appliance.common.nodes_database import NoDatabase, nodes_database
from mailcore.config.load import ConfigError, load
from mailcore.config.nodes import Nodes
from tests.appliance.common.test_postgresql import postgresql
from tests.test_tidy import ROOT, read

__all__ = ["postgresql"]  # a fixture

CONFIG = """
home = "."

[nodes]
database = "host=/nowhere,{host} port=5432,5432 dbname=mail user=waypost"
node = "{node}"
connect_timeout_s = 2

[portal]
database_url = "nodes"
database_password_file = "portal-password"
"""
MADE = r"CREATE ROLE waypost_portal LOGIN PASSWORD '…';|CREATE SCHEMA waypost_portal AUTHORIZATION waypost_portal;"

PAGES = """
import sys
import django
django.setup()
import psycopg
from django.contrib.auth.models import Group, User
from django.db import connection, connections
from django.test import Client
from appliance.accounts.remembered import forget_ended
from appliance.accounts.session_store import Session
from tests.appliance.fake_core import FakeCore
from tests.appliance.live.answers import answers, row

user = User.objects.create_user("ina", password="a long enough password")
user.groups.add(Group.objects.get(name="viewer"))
clients = [Client(headers={"host": "127.0.0.1"}, raise_request_exception=False) for _ in range(3)]
for client in clients:
    assert client.post("/accounts/login/", {"login": "ina", "password": "a long enough password"}).status_code == 302
signed_in, ended, stranger = *clients[:2], Client(headers={"host": "127.0.0.1"}, raise_request_exception=False)
for client in clients[:2]:
    assert client.get("/reports/").status_code == 200
Session.objects.filter(session_key=ended.session.session_key).delete()
forget_ended()  # the portal does so each minute

def allow(word):
    with psycopg.connect(sys.argv[1], autocommit=True) as administrator:
        administrator.execute(f"ALTER ROLE waypost_portal {word}")
        administrator.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'waypost_portal'")
    connections.close_all()

allow("NOLOGIN")
name = "smtp:x.example"
dead = row(dead_until=2e9, last_replies=[{"at": 1.0, "reply": "451 <b>later</b>"}])
there = answers(destinations={"destinations": {name: dead}, "queued": {name: 5}, "states": {name: [["dead", 2e9]]}})
with FakeCore(there) as core:
    for path in ("/", "/reports/"):
        answer = signed_in.get(path)
        text = answer.content.decode()
        assert answer.status_code == 503, answer.status_code
        assert "3, with 7 recipients" in text, text
        assert "x.example" in text and "451 &lt;b&gt;later" in text, text
        assert "<code>waypost status</code>" in text
        assert "incomplete" not in text, text
    both = [{"number": n, "name": f"s{n}", "node": "ab"[n], "is_here": not n, "answers": True} for n in range(2)]
    part = {"by_shard": [{"number": 0, "messages": 3, "recipients": 7}]}
    whole = {"by_shard": [*part["by_shard"], {"number": 1, "messages": 4, "recipients": 4}]}
    silent = {"unanswered": "shard 1 at b: <b>busy</b>"}
    for size, destinations, missing in (
        (whole, {}, ""),
        (part, {}, "incomplete: shard 1 at b has not answered how much mail it has"),
        (whole, silent, "incomplete: shard 1 at b: &lt;b&gt;busy&lt;/b&gt;"),
    ):
        core.answers["state"] = {**there["state"], "shards": both}
        core.answers["size"] = {**there["size"], **size}
        core.answers["destinations"] = {**there["destinations"], **destinations}
        page = signed_in.get("/").content.decode().replace("<bdi>", "").replace("</bdi>", "")
        text = " ".join(page.partition("<main")[2].partition("</main>")[0].split())
        assert missing in text and ("incomplete" in text) == bool(missing), text
        assert ("s1 at b: unknown" if size is part else "s1 at b: 4 messages") in text, text
    core.answers |= there
    for other in (ended, clients[2], stranger):
        text = other.get("/").content.decode()
        assert "with 7 recipients" not in text, text
        assert other is stranger or "The portal cannot use its database; mail delivery continues" in text, text
    answer = signed_in.post("/queue/changes/count/", {"operation": "hold"})
    assert answer.status_code == 503, answer.status_code
    assert "with 7 recipients" not in answer.content.decode()
text = signed_in.get("/").content.decode()
assert "The core does not answer either" in text, text
allow("LOGIN")
assert signed_in.get("/reports/").status_code == 200
assert ended.get("/reports/").status_code == 302
print("all done")
"""


def place_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["host"][0]


def home_of(directory: Path, node: str, host: str) -> Path:
    home = directory / node
    (home / "portal" / "static").mkdir(parents=True)
    (home / "waypost.toml").write_text(CONFIG.format(node=node, host=host))
    (home / "portal-password").write_text("secret-1\n")
    (home / "portal" / "secret.key").write_text("one key of both, which is long enough for Django's own checks")
    return home


def environment_of(home: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    return own | {
        "WAYPOST_CONFIG": str(home / "waypost.toml"), "PYTHONPATH": str(ROOT),
        "DJANGO_SETTINGS_MODULE": "tests.appliance.production",
    }  # fmt: skip


def django(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment_of(home), capture_output=True, text=True, timeout=110,
        check=False,
    )  # fmt: skip


@pytest.fixture
def administrator(postgresql: str) -> str:
    """The URL of the superuser in the database of the nodes, which their role owns."""
    with psycopg.connect(postgresql, autocommit=True) as server:
        server.execute("CREATE ROLE nodes LOGIN")
        server.execute("CREATE DATABASE mail OWNER nodes")
    return postgresql.replace("/postgres?", "/mail?")


def test_the_portal_has_a_schema_and_a_role_of_its_own_and_says_what_it_shows_while_the_database_is_away(
    administrator: str, tmp_path: Path
) -> None:
    host = place_of(administrator)
    made = re.findall(MADE, read("docs/nodes.md"))
    assert len(made) == 2, "the page says how the role and the schema are made"
    with psycopg.connect(administrator, autocommit=True) as connection:
        connection.execute(made[0].replace("…", "secret-1"))
    home = home_of(tmp_path, "a", host)
    refused = django(home, "-m", "django", "first_password")
    assert refused.returncode == 1
    assert f"As its administrator, in that database: {made[1]}" in refused.stderr, refused.stderr
    with psycopg.connect(administrator, autocommit=True) as connection:
        connection.execute(made[1])
    for node in ("a", "b"):
        done = django(home if node == "a" else home_of(tmp_path, node, host), "-m", "django", "first_password")
        assert done.returncode == 0, done.stderr
        assert bool(done.stdout.strip()) == (node == "a"), "one administrator of both"
    with psycopg.connect(administrator) as connection:
        schemas = connection.execute(
            "SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'auth%'"
        ).fetchall()
    assert schemas == [("waypost_portal",)]
    assert not list(tmp_path.glob("*/portal/*.sqlite3"))

    own, nodes = (f"host={host} dbname=mail user={user}" for user in ("waypost_portal", "nodes"))
    with psycopg.connect(nodes, autocommit=True) as connection:
        connection.execute("CREATE TABLE shard(name text)")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("SELECT * FROM waypost_portal.auth_user")
    with psycopg.connect(own, autocommit=True) as connection:
        for statement in ("SELECT * FROM public.shard", "CREATE TABLE public.x(n int)", "CREATE SCHEMA x"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)

    done = django(home, "-c", PAGES, administrator)
    assert done.returncode == 0, done.stderr
    assert "all done" in done.stdout


def test_the_doctor_finds_the_tables_over_a_session_that_writes_nothing(administrator: str, tmp_path: Path) -> None:
    """The session is read-only, and still at the server that takes writes; the tables are in the portal's schema."""
    with psycopg.connect(administrator, autocommit=True) as connection:
        connection.execute("CREATE ROLE waypost_portal LOGIN")
        connection.execute("CREATE SCHEMA waypost_portal AUTHORIZATION waypost_portal")
    home = home_of(tmp_path, "a", place_of(administrator))
    assert django(home, "-m", "django", "first_password").returncode == 0
    done = django(home, "-m", "django", "doctor")
    (found,) = [each for each in json.loads(done.stdout) if each["what"] == "database"]
    assert "migrations are complete" in found["found"], found


def test_all_members_are_named_and_the_one_that_takes_writes_is_used(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("p w\nmore")
    nodes = Nodes(
        database="host=db1,db2 port=5433,5434 dbname=mail user=waypost sslmode=verify-full sslrootcert=/ca.pem",
        node="a",
    )
    made = nodes_database(nodes, str(tmp_path / "password"))
    assert (made["HOST"], made["PORT"], made["NAME"]) == ("db1,db2", "5433,5434", "mail")
    assert (made["USER"], made["PASSWORD"]) == ("waypost_portal", "p w"), "not the role of the nodes"
    options = made["OPTIONS"]
    assert (options["sslmode"], options["sslrootcert"]) == ("verify-full", "/ca.pem")
    assert options["target_session_attrs"] == "read-write"
    assert options["connect_timeout"] == 3
    with pytest.raises(NoDatabase, match=r"database_password_file: .*nothing.*: No such file"):
        nodes_database(nodes, str(tmp_path / "nothing"))
    with pytest.raises(NoDatabase, match=r'"nodes", but \[nodes\] database is not set'):
        nodes_database(replace(nodes, database="", node=""), "")


def test_without_nodes_it_is_refused_by_the_line(tmp_path: Path) -> None:
    path = tmp_path / "waypost.toml"
    path.write_text('home = "."\n[portal]\ndatabase_url = "nodes"\ndatabase_password_file = "p"\n')
    with pytest.raises(ConfigError, match=r"waypost.toml:3: .*\[nodes\] database"):
        load(path)
    path.write_text(path.read_text() + '[nodes]\ndatabase = "host=db1 dbname=mail"\n')
    assert load(path).portal.database_password_file == str(tmp_path / "p")
