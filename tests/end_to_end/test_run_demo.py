"""./run as somebody types it: the portal beside the core, the demo beside both, and what becomes of them when the core ends."""

from __future__ import annotations

import asyncio
import contextlib
import http.cookiejar
import os
import re
import signal
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mailcore.control.client import ControlClient, ControlError
from mailcore.lab.behaviour import BehaviourError, Occasion, Stage
from mailcore.lab.demo import HOSTILE, make_hostile, read_demo
from mailcore.lab.lab import Lab
from mailcore.lab.traffic import WEIGHTS, Traffic
from tests.end_to_end.appliance import free_port
from tests.eventually import PATIENCE_S, eventually_blocking
from tests.test_tidy import ROOT

FOREIGN = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "WAYPOST_CONFIG")  # of the tests' own portal


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in FOREIGN}


class Started:
    """./run with a configuration of its own; ``words`` is what it printed."""

    def __init__(self, directory: Path, *arguments: str, config: str, portal: int = 0) -> None:
        self.smtp, self.portal = free_port(), portal or free_port()
        self.home = directory / "home"
        self.config = directory / "waypost.toml"
        text = (
            (ROOT / config)
            .read_text()
            .replace("127.0.0.1:2525", f"127.0.0.1:{self.smtp}")
            .replace(":2526", f":{free_port()}")
        )
        text = re.sub(r"(?m)^home = .*$", f'home = "{self.home}"', text)
        self.config.write_text(f'{text}\n[portal]\nlisten = "127.0.0.1:{self.portal}"\n')
        self._output = directory / "output"
        with self._output.open("wb") as out:
            self.process = subprocess.Popen(
                ["./run", *arguments, "--config", str(self.config)],
                cwd=ROOT,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=environment(),
            )

    @property
    def words(self) -> str:
        return self._output.read_text(errors="replace")

    def until(self, true: Callable[[], object], what: str) -> None:
        eventually_blocking(true, lambda: f"{what}\n{self.words}", look_every_s=0.1)

    def others(self) -> set[int]:
        """Processes of the session, but the one that was started."""
        found = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.process.pid and fields[0] != "Z":
                    found.add(int(entry.name))
        return found - {self.process.pid}

    def counter(self, name: str) -> int:
        with (
            contextlib.suppress(ControlError),
            ControlClient(self.home / "run" / "control.sock", timeout_s=10) as control,
        ):
            return int(control.call("state")["counters"][name])
        return 0

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(PATIENCE_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def make(*arguments: str, config: str, portal: int = 0) -> Started:
        started.append(Started(tmp_path, *arguments, config=config, portal=portal))
        return started[-1]

    yield make
    for each in started:
        each.end()


def overview(port: int, user: str, password: str) -> str:
    """The first page after signing in."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
    address = f"http://127.0.0.1:{port}/accounts/login/"
    with opener.open(address, timeout=PATIENCE_S) as answer:
        token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', answer.read().decode())
    assert token is not None
    fields = {"csrfmiddlewaretoken": token[1], "login": user, "password": password}
    with opener.open(address, urllib.parse.urlencode(fields).encode(), timeout=PATIENCE_S) as answer:
        assert urllib.parse.urlsplit(answer.url).path == "/"
        return str(answer.read().decode())


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_demo_lives_and_ends_with_kill_9(start: Callable[..., Started]) -> None:
    run = start("--demo", config="demo.toml")
    run.until(lambda: listens(run.portal), "the portal")
    said = re.search(r"portal: sign in as (\w+) with (\S+)", run.words)
    assert said is not None, run.words
    assert f"portal: http://127.0.0.1:{run.portal}/" in run.words
    assert "<h1>Overview</h1>" in overview(run.portal, said[1], said[2])
    for counter in ("recipients_accepted", "recipients_delivered", "recipients_deferred"):
        run.until(lambda counter=counter: run.counter(counter), counter)  # type: ignore[misc]
    assert run.others()
    os.kill(run.process.pid, signal.SIGKILL)  # the core's supervisor, which ./run has become
    run.process.wait(PATIENCE_S)
    run.until(lambda: not run.others(), "the end of everything")
    assert not listens(run.portal)


@pytest.mark.long
def test_a_port_in_use_is_told_and_the_mail_goes_on(start: Callable[..., Started]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        run = start(config="waypost.toml", portal=taken.getsockname()[1])
        run.until(lambda: "cannot listen on" in run.words, "the complaint")
        assert f"portal: cannot listen on 127.0.0.1:{run.portal}: Address already in use." in run.words
        assert "Traceback" not in run.words
        run.until(lambda: listens(run.smtp), "the core")
        assert run.process.poll() is None


def test_what_is_wrong_with_the_configuration_is_told_once(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("[receiver]\nlisten = 5\n")
    done = subprocess.run(
        ["./run", "--config", str(broken)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env=environment(),
    )
    assert done.returncode == 2
    assert done.stderr.count("broken.toml") == 1
    assert "Traceback" not in done.stderr


# -- what the demo does


def test_every_route_of_the_demo_has_its_hop_and_nothing_leaves_this_machine() -> None:
    address, plans = read_demo(ROOT / "demo.toml")
    assert address == ("127.0.0.1", 2525)
    assert len(plans) == len({(plan.host, plan.port) for plan in plans}) == 13
    assert all(plan.host.startswith("127.") for plan in plans)
    assert {plan.name for plan in plans} >= {name.partition(".")[0] for name in WEIGHTS}


def test_a_file_that_is_not_the_demos_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('[receiver]\nlisten = ["127.0.0.1:2525"]\n[routes]\n"*" = "smtp"\n')
    with pytest.raises(BehaviourError, match="not a route of the demo"):
        read_demo(tmp_path / "other.toml")
    with pytest.raises(BehaviourError, match="no configuration of the demo"):
        read_demo(tmp_path / "nothing.toml")


async def test_the_hostile_hop_says_all_it_can_and_takes_some() -> None:
    async with Lab(["accept:127.0.0.1:0"]) as lab:
        make_hostile(lab.hops[0])
        (reply,) = lab.hops[0].behaviour.traits[Stage.RCPT]
        said = {reply(Occasion(0.0, 1, recipients=(f"a{number}@x.example",))) for number in range(50)}
    assert said == {*HOSTILE, None}


async def test_traffic_is_mixed_repeatable_and_bounded() -> None:
    def letters() -> list[tuple[str, int, int]]:
        traffic = Traffic(("127.0.0.1", 1), seed=7)
        made = [traffic.letter() for _ in range(2_000)]
        return [(letter.recipients[0], len(letter.recipients), len(letter.data)) for letter in made]

    made = letters()
    assert made == letters()
    domains = {recipient.rpartition("@")[2] for recipient, _, _ in made}
    assert domains >= set(WEIGHTS)
    assert max(count for _, count, _ in made) <= 120
    assert sum(count > 15 for _, count, _ in made) > 5
    assert 1_000_000 < max(size for _, _, size in made) < 2_000_000


async def test_traffic_goes_on_when_nobody_takes_it_for_a_while() -> None:
    port = free_port()
    traffic = Traffic(("127.0.0.1", port), rate=200.0)
    task = asyncio.create_task(traffic.run())
    await asyncio.sleep(0.2)
    assert not task.done()
    async with Lab([f"accept:127.0.0.1:{port}"]) as lab:
        await lab.wait_for(5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
