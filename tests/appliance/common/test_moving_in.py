"""A portal with a database of its own moves into the one of all nodes: users, tokens and audit, once, in one list."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.appliance.common.test_postgresql import postgresql
from tests.appliance.common.test_shared_postgresql import home_of
from tests.test_tidy import ROOT

__all__ = ["postgresql"]  # a fixture

FILL = """
import sys
import django
django.setup()
from datetime import timedelta
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.utils import timezone
from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from appliance.accounts.models import GivenPassword
from appliance.api.scopes import Scope
from appliance.api.tokens import make
from appliance.audit.models import Entry
from appliance.audit.record import record
call_command("migrate", verbosity=0)
names, hour = sys.argv[1].split(","), int(sys.argv[2])
for name in names:
    user = User.objects.create_user(name, password="a long enough password")
    user.groups.add(Group.objects.get(name="operator"))
    Authenticator.objects.create(
        user=user, type="totp", data={"secret": get_adapter().encrypt("JBSWY3DPEHPK3PXP")}
    )
    if name != "ina":
        GivenPassword.objects.create(user=user)
    print(name, make(user, "a program", [Scope.READ], 30)[1])
for number in range(3):
    entry = record(None, "queue.hold", f"{names[0]}-{number}", who=names[0])
    at = timezone.now() - timedelta(hours=10) + timedelta(hours=2 * number + hour)
    super(type(Entry.objects.all()), Entry.objects.filter(pk=entry.pk)).update(at=at)
"""
LOOK = """
import sys
import django
django.setup()
import json
from datetime import timedelta
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from appliance.audit.models import Entry
from appliance.audit.record import record
client = Client(headers={"host": "127.0.0.1", "authorization": f"Bearer {sys.argv[1]}"})
until = (timezone.now() - timedelta(hours=6, minutes=30)).strftime("%Y-%m-%dT%H:%M")
for query in ("", f"&until={until}"):
    entries = json.loads(client.get(f"/api/v1/audit?action=queue.hold{query}").content)["entries"]
    print(*(f"{each['subject']}@{each['node']}" for each in entries))
print(record(None, "queue.hold", "new", who="x").pk > max(Entry.objects.exclude(subject="new").values_list("pk", flat=True)))
print(*(f"{user.username}:{user.groups.get().name}:{user.check_password('a long enough password')}"
        for user in User.objects.order_by("username")))
"""

# What another portal does while entries are taken in: an action under way, and an entry at the worst moment.
BESIDE = """
import sys
import threading
import django
django.setup()
from pathlib import Path
from django.core.management import call_command
from django.db import connection, connections
from django.urls import reverse
from appliance.audit.models import Entry, Outcome
from appliance.audit.record import record
for number in range(4):
    record(None, "queue.hold", f"before-{number}", who="tom")
running = Entry(action="queue.delete", who="tom", subject="under way")
running.begin()
numbers = set(Entry.objects.values_list("pk", flat=True))
entered = threading.Event()
def enter():
    record(None, "queue.hold", "meanwhile", who="tom")
    entered.set()
    connections.close_all()
threads = []
def between(execute, sql, params, many, context):
    done = execute(sql, params, many, context)
    if sql.startswith("UPDATE audit_entry"):
        threads.append(threading.Thread(target=enter))
        threads[-1].start()
        entered.wait(2)
    return done
with connection.execute_wrapper(between):
    call_command("move_in", sys.argv[1])
for thread in threads:
    thread.join()
running.outcome, running.words = Outcome.DONE, "9 messages"
running.end()
found = Entry.objects.order_by("id")
print(*(each.subject for each in found if each.action == "queue.hold"))
print(*(f"{each.subject}: {each.words}" for each in found if each.words and each.action.startswith("queue")))
print("again:", len(numbers & {each.pk for each in found}), len([reverse("audit:entry", args=[each.pk]) for each in found]))
print(record(None, "queue.hold", "new", who="tom").pk > max(each.pk for each in found))
"""


def run(home: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) | {
        "WAYPOST_CONFIG": str(home / "waypost.toml"), "DATABASE_URL": url, "PYTHONPATH": str(ROOT),
        "DJANGO_SETTINGS_MODULE": "tests.appliance.production",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_two_portals_move_into_one_database(postgresql: str, tmp_path: Path) -> None:
    a, b = home_of(tmp_path, "a"), home_of(tmp_path, "b")
    tokens: dict[str, str] = {}
    for home, names, hour in ((a, "ina,tom", "0"), (b, "bob,tom", "1")):
        filled = run(home, "", "-c", FILL, names, hour)
        assert filled.returncode == 0, filled.stderr
        tokens |= {f"{line.split()[0]}@{home.name}": line.split()[1] for line in filled.stdout.splitlines()}
    assert run(a, postgresql, "-m", "django", "migrate", "-v", "0").returncode == 0
    said = []
    for home in (a, b):
        done = run(home, postgresql, "-m", "django", "move_in", str(home / "portal" / "portal.sqlite3"))
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.splitlines())
    assert said == [
        ["taken: 2 users, 2 tokens, 3 audit entries"],
        ["taken: 1 user, 1 token, 3 audit entries",
         "there already, and left as they are, without the tokens of here: tom"],
    ]  # fmt: skip
    again = run(b, postgresql, "-m", "django", "move_in", str(b / "portal" / "portal.sqlite3"))
    assert again.returncode == 1
    assert "nothing was taken: the database of node b was taken in before" in again.stderr
    looked = run(b, postgresql, "-c", LOOK, tokens["ina@a"])
    assert looked.returncode == 0, looked.stderr
    assert looked.stdout.splitlines() == [
        "bob-2@b ina-2@a bob-1@b ina-1@a bob-0@b ina-0@a",
        "bob-1@b ina-1@a bob-0@b ina-0@a",
        "True",
        "bob:operator:True ina:operator:True tom:operator:True",
    ]
    with psycopg.connect(postgresql) as connection:
        owners = connection.execute(
            "SELECT username FROM api_apitoken JOIN auth_user ON auth_user.id = user_id ORDER BY 1"
        ).fetchall()
        factors = connection.execute(
            "SELECT username FROM mfa_authenticator JOIN auth_user ON auth_user.id = user_id ORDER BY 1"
        ).fetchall()
        given = connection.execute("SELECT count(*) FROM accounts_givenpassword").fetchone()
    assert owners == factors == [("bob",), ("ina",), ("tom",)]
    assert given == (2,)


def test_portals_that_run_meanwhile_keep_what_they_enter(postgresql: str, tmp_path: Path) -> None:
    """An action under way stores its outcome in its own entry, an entry made in the middle has a number like the others, and
    no number of before names another entry."""
    a, b = home_of(tmp_path, "a"), home_of(tmp_path, "b")
    assert run(b, "", "-c", FILL, "bob", "0").returncode == 0
    assert run(a, postgresql, "-m", "django", "migrate", "-v", "0").returncode == 0
    done = run(b, postgresql, "-c", BESIDE, str(b / "portal" / "portal.sqlite3"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        "bob-0 bob-1 bob-2 before-0 before-1 before-2 before-3 meanwhile",
        "under way: 9 messages",
        "again: 0 10",
        "True",
    ]


def test_a_user_whose_second_factor_cannot_be_read_is_disabled_and_named(postgresql: str, tmp_path: Path) -> None:
    """It is encrypted with the key of before; without it, the password alone would let the user in."""
    home = home_of(tmp_path, "b")
    assert run(home, "", "-c", FILL, "bob", "0").returncode == 0
    (home / "portal" / "secret.key").write_text("the key that the portals of all nodes have, also of this length")
    assert run(home, postgresql, "-m", "django", "migrate", "-v", "0").returncode == 0
    done = run(home, postgresql, "-m", "django", "move_in", str(home / "portal" / "portal.sqlite3"))
    assert done.returncode == 0, done.stderr
    assert "disabled, because their second factor needs the key of before: bob" in done.stdout
    with psycopg.connect(postgresql) as connection:
        assert connection.execute("SELECT is_active FROM auth_user").fetchall() == [(False,)]
        assert connection.execute("SELECT count(*) FROM mfa_authenticator").fetchone() == (0,)


@pytest.mark.parametrize("what", ["nothing", "older"])
def test_a_file_that_is_no_database_of_this_release_is_refused(what: str, tmp_path: Path) -> None:
    home, old = home_of(tmp_path, "a"), tmp_path / "old.sqlite3"
    if what == "older":
        with sqlite3.connect(old) as connection:
            connection.execute("CREATE TABLE t (n INTEGER)")
    assert run(home, "", "-m", "django", "migrate", "-v", "0").returncode == 0
    done = run(home, "", "-m", "django", "move_in", str(old))
    assert done.returncode == 1
    assert {"nothing": "there is no such file", "older": "is of an earlier release"}[what] in done.stderr
