"""The portals of two nodes on one real PostgreSQL: started at once, they make its tables and the first administrator once; and
what holds for two portals on SQLite holds there."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import psycopg

from appliance.common.shared_database import TURN_S
from tests.appliance.common.test_postgresql import postgresql
from tests.eventually import PATIENCE_S
from tests.test_tidy import ROOT

__all__ = ["postgresql"]  # a fixture

NODE = """
home = "."

[nodes]
database = "host=/nowhere dbname=waypost"
node = "{node}"
"""


def home_of(
    directory: Path, node: str, key: str = "one key of both, which is long enough for Django's own checks"
) -> Path:
    home = directory / node
    (home / "portal" / "static").mkdir(parents=True)
    (home / "waypost.toml").write_text(NODE.format(node=node))
    (home / "portal" / "secret.key").write_text(key)
    return home


def begun(home: Path, url: str, *arguments: str) -> subprocess.Popen[str]:
    environment = dict(os.environ) | {
        "WAYPOST_CONFIG": str(home / "waypost.toml"), "DATABASE_URL": url, "PYTHONPATH": str(ROOT),
        "DJANGO_SETTINGS_MODULE": "tests.appliance.production",
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "django", *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_portals_that_start_at_once_make_the_tables_and_the_first_administrator_once(
    postgresql: str, tmp_path: Path
) -> None:
    processes = [begun(home_of(tmp_path, node), postgresql, "first_password") for node in ("a", "b", "c")]
    ended = [process.communicate(timeout=110) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], ended
    assert len([out for out, _ in ended if out.strip()]) == 1, "one password was printed"
    with psycopg.connect(postgresql) as connection:
        assert connection.execute("SELECT count(*) FROM auth_user").fetchone() == (1,)
        keys = connection.execute("SELECT node, digest FROM accounts_portalkey ORDER BY node").fetchall()
    assert [node for node, _ in keys] == ["a", "b", "c"]
    home = home_of(tmp_path, "d", "another key, which is as long as the one that the others have")
    other = begun(home, postgresql, "first_password")
    out, error = other.communicate(timeout=110)
    assert (other.returncode, out) == (1, "")
    assert "the portal of node d has another key" in error
    assert "(a, b, c)" in error


CHANGING = """
import time
import django; django.setup()
from django.db import connection
from appliance.common.shared_database import one_at_a_time
with one_at_a_time():
    with connection.cursor() as cursor:
        cursor.execute("SELECT source FROM pg_settings WHERE name = 'tcp_keepalives_idle'")
        print(*cursor.fetchone(), flush=True)
    time.sleep(600)
"""


def test_a_portal_that_waits_for_another_which_changes_the_tables_says_for_whom(
    postgresql: str, tmp_path: Path
) -> None:
    """It starts as soon as that one is gone."""
    url = postgresql + "&application_name=waypost+portal+a"
    other = begun(home_of(tmp_path, "a"), url, "shell", "--no-imports", "-c", CHANGING)
    starts = None
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "session\n", (
            "the server would keep the lock of a machine that is gone for hours"
        )
        starts = begun(home_of(tmp_path, "b"), postgresql, "first_password")
        assert starts.stderr is not None
        assert select.select([starts.stderr], [], [], PATIENCE_S)[0], "it waits without a word"
        said = starts.stderr.readline()
        assert "waits for waypost portal a (process " in said
        assert "changes the tables of the database" in said
        assert starts.poll() is None
        other.kill()
        _, rest = starts.communicate(timeout=110)
        assert starts.returncode == 0, rest
    finally:
        for process in (other, *([starts] if starts else [])):
            process.kill()
            process.communicate()


def test_what_holds_on_sqlite_holds_there(postgresql: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "--ds", "tests.appliance.reports.on_postgresql",
         "--create-db", "tests/appliance/common/test_shared_portals.py"],
        cwd=ROOT, env=dict(os.environ) | {"WAYPOST_TESTS_POSTGRESQL": postgresql}, capture_output=True, text=True,
        timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout


TURN = """
import os, pathlib, time
import django; django.setup()
from appliance.common.shared_database import WEBHOOKS, take_turn
home = pathlib.Path(os.environ["WAYPOST_CONFIG"]).parent
take_turn(WEBHOOKS, lambda: not (home / "core-away").exists())
print("turn", flush=True)
time.sleep(600)
"""


def test_one_process_of_all_nodes_has_the_turn_and_the_next_one_follows_it(postgresql: str, tmp_path: Path) -> None:
    """It follows a process that is killed, one whose session the database has ended, one whose core is away, and one that is
    stopped; these wait again."""
    processes: dict[str, subprocess.Popen[str]] = {}
    said: dict[str, IO[str]] = {}

    def begin(node: str) -> None:
        processes[node] = begun(home_of(tmp_path, node), postgresql, "shell", "--no-imports", "-c", TURN)
        pipe = processes[node].stdout
        assert pipe is not None
        said[node] = pipe

    def has_turn(*nodes: str) -> str:
        ready, _, _ = select.select([said[node] for node in nodes], [], [], PATIENCE_S)
        assert ready, "none has the turn"
        assert ready[0].readline() == "turn\n"
        return next(node for node in nodes if said[node] is ready[0])

    try:
        begin("a")
        begin("b")
        first = has_turn("a", "b")
        other = "b" if first == "a" else "a"
        errors = processes[other].stderr
        assert errors is not None
        assert "waits for its turn: one process of all nodes works at a time, now " in errors.readline()
        assert not select.select([said[other]], [], [], 3 * TURN_S)[0], "both have it"
        processes[first].kill()
        assert has_turn(other) == other
        begin("c")
        with psycopg.connect(postgresql, autocommit=True) as connection:
            query = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            assert connection.execute(query).fetchall() == [(True,)]
        last = has_turn("c", other)
        rest = "c" if last == other else other
        assert not select.select([said[rest]], [], [], 3 * TURN_S)[0], "both have it"
        (tmp_path / last / "core-away").touch()
        assert has_turn(rest) == rest
        assert processes[last].poll() is None
        (tmp_path / last / "core-away").unlink()
        processes[rest].send_signal(signal.SIGSTOP)
        assert has_turn(last) == last
        processes[rest].send_signal(signal.SIGCONT)
        assert not select.select([said[rest]], [], [], 3 * TURN_S)[0], "both have it"
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


def test_a_process_that_sends_to_webhooks_says_why_it_waits(postgresql: str, tmp_path: Path) -> None:
    """For the tables, and at a node that has another key than the others."""
    homes = (
        home_of(tmp_path, "a"),
        home_of(tmp_path, "b", "another key, which is as long as the one that the others have"),
    )
    whys = (
        "it has not all its tables",
        "the portal of node b has another key than the portals that share its database (a)",
    )
    for home, why in zip(homes, whys, strict=True):
        process = begun(home, postgresql, "webhooks")
        try:
            assert process.stderr is not None
            assert why in process.stderr.readline()
            assert process.poll() is None
        finally:
            process.kill()
            process.communicate()
        begun(homes[0], postgresql, "first_password").communicate(timeout=110)
