"""Machines of one inventory and what an operator does with them: plays, questions to the command ``waypost``, next hops."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mailcore.lab.arrival import Arrival
from mailcore.lab.lab import Lab
from tests.ansible.playing import play
from tests.eventually import PATIENCE_S, eventually
from tests.json_lines import read_list
from tests.servers.load import Load, sending
from tests.servers.machine import PACKAGES, PROXY_PORT, Machine, base_tree, machine, run
from tests.servers.proxy import proxy
from tests.test_tidy import ROOT

__all__ = [
    "FIRST",
    "PATIENCE_S",
    "SECOND",
    "Servers",
    "all_arrived",
    "asked",
    "booted",
    "each_is_its_own_user",
    "in_thread",
    "listed",
    "main_pid",
    "next_hop",
    "release",
    "some_mail_arrives",
    "until",
    "until_empty",
]

FIRST, SECOND = "0.0.1", "0.0.2"
PLAY_S = 1800.0
HOP_PORT = 2526
SITE = "waypost.appliance.site"
UNINSTALL = "waypost.appliance.uninstall"
ROLES = {
    "waypost: receiver": "waypost-receiver",
    "waypost: manager": "waypost",
    "waypost: deliverer": "waypost-deliverer",
    "django serve": "waypost-portal",
    "django watch": "waypost-portal",
    "django webhooks": "waypost-portal",
    "celery": "waypost-portal",
}
EXPOSURE = (
    "for unit in core portal watch webhooks worker beat redis; do systemd-analyze security --no-pager waypost-$unit.service"
    " | sed -n 's/.*exposure level for [^:]*: \\([0-9.]*\\) .*/\\1/p'; done"
)
UNITS = 7  # that EXPOSURE looks at
EXPOSURE_MAX = 2.0


def release(version: str, python: str) -> None:
    """Into dist/."""
    run(ROOT / "make-release", "--version", version, "--python", python, timeout_s=1200)


@dataclass
class Servers:
    place: Path
    suite: str
    machines: list[Machine] = field(default_factory=list)
    version: str = FIRST
    packages: str = PACKAGES
    variables: dict[str, Any] = field(default_factory=dict)  # beside those of every machine
    _running: dict[int, contextlib.ExitStack] = field(default_factory=dict)

    def boot(self, number: int) -> Machine:
        """A fresh one."""
        kept = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        kept.mkdir(parents=True, exist_ok=True)
        base = base_tree(kept, self.suite, self.packages)
        with contextlib.ExitStack() as stack:
            made = stack.enter_context(machine(f"mail{number}", number, self.place, base, self.place / "key"))
            stack.enter_context(proxy(made.host, PROXY_PORT))
            self._running[number] = stack.pop_all()
        return made

    def destroy(self, number: int) -> None:
        """Its disk, too."""
        shutil.rmtree(self.place / "ansible" / "cp", ignore_errors=True)  # connections that are kept open
        self._running.pop(number).close()

    def stop(self) -> None:
        with contextlib.ExitStack() as stack:
            for each in self._running.values():
                stack.push(each)

    def inventory(self) -> dict[str, Any]:
        def host(one: Machine) -> dict[str, Any]:
            return {
                "ansible_host": one.address,
                "waypost_hostname": f"{one.name}.example",
                "waypost_routes": {"*": f"smtp:[{one.host}]:{HOP_PORT}"},
                "waypost_database": "postgresql" if one.number == 2 else "sqlite",
            }

        options = " ".join(self.machines[0].ssh_options)
        shared = {
            "ansible_user": "root",
            "ansible_ssh_common_args": options,
            "waypost_version": self.version,
            "waypost_release_directory": str(ROOT / "dist"),
            "waypost_relay_networks": ["127.0.0.0/8", "::1/128", "10.25.0.0/16"],
            "waypost_settings": {"portal": {"hsts_preload": False}},
            **self.variables,
        }
        return {"waypost": {"hosts": {one.name: host(one) for one in self.machines}, "vars": shared}}

    def ansible(self, *options: str) -> subprocess.CompletedProcess[str]:
        done = play(self.place, SITE, self.inventory(), *options, timeout_s=PLAY_S)
        (self.place / "last-play").write_text(done.stdout)
        return done

    def uninstall(self, *options: str) -> None:
        """Takes Waypost from every machine."""
        done = play(self.place, UNINSTALL, self.inventory(), *options, timeout_s=PLAY_S)
        assert done.returncode == 0, done.stdout[-6000:]

    def play(self, *options: str) -> dict[str, dict[str, int]]:
        """What each machine says at the end: ok, changed, failed…"""
        done = self.ansible(*options)
        assert done.returncode == 0, done.stdout[-6000:]
        recap = done.stdout.partition("PLAY RECAP")[2]
        return {
            found["name"]: {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", found["counts"])}
            for found in re.finditer(r"^(?P<name>\w+)\s+: (?P<counts>.*)$", recap, re.MULTILINE)
        }

    def changed(self) -> list[str]:
        """The tasks of the last play that changed something."""
        told, task = [], ""
        for line in (self.place / "last-play").read_text().splitlines():
            if line.startswith(("TASK [", "RUNNING HANDLER [")):
                task = line
            elif line.startswith("changed:"):
                told.append(task)
        return told

    def nothing_changes(self, *options: str) -> None:
        counts = self.play(*options)
        assert all(count["changed"] == 0 for count in counts.values()), self.changed()

    def nothing_would_change(self, *options: str) -> None:
        self.nothing_changes("--check", "--diff", *options)


@contextlib.contextmanager
def booted(suite: str, numbers: Sequence[int], packages: str = PACKAGES) -> Iterator[Servers]:
    place = Path(tempfile.mkdtemp(prefix="waypost-servers-"))
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / "key")
    servers = Servers(place, suite, packages=packages)
    try:
        servers.machines += [servers.boot(number) for number in numbers]
        yield servers
    finally:
        servers.stop()
        shutil.rmtree(place, ignore_errors=True)


@asynccontextmanager
async def next_hop(*machines: Machine) -> AsyncIterator[list[Arrival]]:
    """Takes the mail of all of them."""
    arrived: list[Arrival] = []
    async with Lab([f"accept:{one.host}:{HOP_PORT}" for one in machines], on_arrival=arrived.append):
        yield arrived


def main_pid(one: Machine, unit: str = "waypost-core") -> int:
    return int(one.ssh(f"systemctl show --property=MainPID --value {unit}"))


def asked(one: Machine, *words: str) -> Any:
    return json.loads(one.ssh(f"waypost {' '.join(words)} --json"))


def listed(one: Machine, *words: str) -> list[dict[str, Any]]:
    return read_list(one.ssh(f"waypost {' '.join(words)} --json"))[0]


def each_is_its_own_user(one: Machine) -> list[float]:
    """All services run, and none has failed; each one's exposure."""
    assert one.ssh("systemctl list-units --failed --plain --no-legend 'waypost*'") == ""
    listed = one.ssh("ps -eo user:32,args | grep -E '[w]aypost: |[d]jango (serve|watch|webhooks)|[c]elery'")
    owners = {(line.split()[0], name) for line in listed.splitlines() for name in ROLES if name in line}
    assert owners == {(user, name) for name, user in ROLES.items()}
    exposed = [float(line) for line in one.ssh(EXPOSURE).split()]
    assert len(exposed) == UNITS
    assert max(exposed) <= EXPOSURE_MAX
    return exposed


async def in_thread(call: Callable[..., Any], *arguments: str) -> Any:
    """The next hop goes on meanwhile."""
    return await asyncio.to_thread(call, *arguments)


async def until(true: Callable[[], bool], what: str) -> None:
    await eventually(lambda: asyncio.to_thread(true), what, look_every_s=0.2)


async def until_empty(one: Machine) -> None:
    def empty() -> bool:
        size = asked(one, "queue", "size")
        return not size["messages"] and not size["unheard"]

    await until(empty, "an empty queue")


async def all_arrived(arrived: list[Arrival], load: Load) -> str:
    """Each message that was answered with 250 came to the next hop. In words, also what came twice."""

    def missing() -> set[str]:
        return load.accepted - {subject_of(arrival) for arrival in arrived}

    await eventually(
        lambda: not missing(),
        lambda: f"{len(missing())} of {len(load.accepted)} messages: {sorted(missing())[:5]}",
        look_every_s=0.2,
    )
    tries = [arrival.id for arrival in arrived]
    twice = len(tries) - len(set(tries))  # by us
    again = len(set(tries)) - len({subject_of(arrival) for arrival in arrived})  # by a client that had not seen its 250
    return (
        f"{len(load.accepted)} accepted, all arrived; {twice} delivered twice, {again} sent again by the client; "
        f"{load.refused} connections refused, {load.broken} cut; the longest wait for a 250 was {load.longest_s:.2f} s"
    )


def subject_of(arrival: Arrival) -> str:
    return arrival.recipients[0].partition("@")[0]


async def some_mail_arrives(one: Machine, port: int = 25) -> None:
    async with next_hop(one) as arrived:
        with sending(one.address, clients=1, port=port) as load:
            await until(lambda: len(load.accepted) >= 3, "three messages to be accepted")
        await all_arrived(arrived, load)
