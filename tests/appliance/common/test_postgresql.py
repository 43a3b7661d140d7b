"""The portal on PostgreSQL: a server of its own, migrations, signing in, the audit's pages."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import PATIENCE_S
from tests.test_tidy import ROOT

SCRIPT = """
import django
django.setup()
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.core.management import call_command
from django.db import connection, connections
from django.test import Client
from concurrent.futures import ThreadPoolExecutor
from appliance.api.models import ApiToken, KeptAnswer
from appliance.api.scopes import Scope
from appliance.api.tokens import make
from appliance.audit.models import Entry
from appliance.audit.retention import tidy
from tests.appliance.fake_core import FakeCore

assert connection.vendor == "postgresql"
call_command("migrate", interactive=False, verbosity=0)
call_command("migrate", check_unapplied=True, verbosity=0)
user = User.objects.create_user("ina", password="a long enough password")
user.groups.add(Group.objects.get(name="administrator"))
client = Client(headers={"host": "127.0.0.1"})
assert client.post("/accounts/login/", {"login": "ina", "password": "wrong"}).status_code == 200
assert client.post("/accounts/login/", {"login": "ina", "password": "a long enough password"}).status_code == 302
for path in ("/audit/?who=ina&text=wrong&since=2020-01-01T00:00", "/audit/?subject=i*", "/audit/csv/", "/admin/",
             "/admin/auth/user/", "/admin/axes/accessattempt/", "/admin/audit/entry/", "/reports/schedules/"):
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.status_code)
    if path.startswith("/audit/"):
        assert "sign_in.failed" in answer.content.decode(), path
new = {"username": "tom", "password1": "a quite long password", "password2": "a quite long password", "role": "viewer",
       "why": "starts today"}
assert client.post("/admin/auth/user/add/", new).status_code == 302
tom = User.objects.get(username="tom")
change = {"username": "tom", "role": "operator", "is_active": "on", "why": "more to do"}
assert client.post(f"/admin/auth/user/{tom.pk}/change/", change).status_code == 302
assert Entry.objects.get(action="user.change").after["role"] == "operator"
assert client.post(f"/admin/auth/user/{tom.pk}/delete/", {"post": "yes", "why": "has left"}).status_code == 302
tidy()

# The HTTP API: eight requests at once with one key send one message; a text that PostgreSQL does not store is an error.
token, text = make(user, "a program", list(Scope), 30)
path = "/api/v1/messages?sender={}&recipient=c@d.example"
named = {"host": "127.0.0.1", "authorization": f"Bearer {text}"}

def send(sender, **more):
    try:
        answer = Client().post(path.format(sender), b"Subject: x", content_type="message/rfc822", headers=named | more)
        return answer.status_code
    finally:
        connections.close_all()

message = {"queue_id": "1K0RDGV4BE900"}
with FakeCore({"inject_begin": message, "inject_data": {}, "inject_end": message}) as core:
    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(lambda _: send("a@b.example", **{"idempotency-key": "once"}), range(8)))
    assert 202 in statuses and set(statuses) <= {202, 503}, statuses
    assert len(core.asked("inject_end")) == 1
    assert send("a@b.example", **{"idempotency-key": "once"}) == 202
    assert len(core.asked("inject_end")) == 1
    assert send("a%00@b.example") == 422
assert ApiToken.objects.get(pk=token.pk).used_in_minute > 0
assert KeptAnswer.objects.get().status == 202
assert Entry.objects.get(action="message.send").token == "a program"
print("all done")
"""


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    assert found, "Debian's package postgresql is missing; ./test installs it"
    return found[-1].parent


@pytest.fixture
def postgresql() -> Iterator[str]:
    """The URL of a server that listens on a Unix socket alone, in a directory that is gone at the end."""
    programs = _programs()
    directory = Path(tempfile.mkdtemp(prefix="wp-pg-"))
    user: str | None = None  # of this process; a root may not run it
    if os.geteuid() == 0:
        user = "postgres" if any(entry.pw_name == "postgres" for entry in pwd.getpwall()) else "nobody"
        shutil.chown(directory, user)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
    subprocess.run(
        [programs / "initdb", "--pgdata", directory / "data", "--auth", "trust", "--username", "waypost", "--no-sync",
         "--encoding", "UTF8"],
        user=user, env=environment, cwd=directory, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    log = (directory / "log").open("wb")
    server = subprocess.Popen(
        [programs / "postgres", "-D", directory / "data", "-k", directory, "-c", "listen_addresses=", "-c", "fsync=off"],
        user=user, env=environment, cwd=directory, stdout=log, stderr=log,
    )  # fmt: skip
    log.close()
    try:
        # Waits until it takes connections.
        for _ in range(300):
            ready = subprocess.run(
                [programs / "pg_isready", "-h", directory, "-q"], check=False, timeout=PATIENCE_S, capture_output=True
            ).returncode
            if ready == 0:
                break
            assert server.poll() is None, (directory / "log").read_text()
            try:
                server.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        yield f"postgresql://waypost@/postgres?host={directory}"
    finally:
        server.kill()  # what it wrote is thrown away
        server.wait()
        shutil.rmtree(directory, ignore_errors=True)


def test_the_portal_lives_on_postgresql(postgresql: str, tmp_path: Path) -> None:
    (tmp_path / "waypost.toml").write_text('home = "."\n')
    (tmp_path / "portal" / "static").mkdir(parents=True)
    environment = dict(os.environ) | {
        "WAYPOST_CONFIG": str(tmp_path / "waypost.toml"), "DATABASE_URL": postgresql,
        "DJANGO_SETTINGS_MODULE": "tests.appliance.production", "PYTHONPATH": str(ROOT),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "all done" in done.stdout
    assert not (tmp_path / "portal" / "portal.sqlite3").exists()
