"""The OCI image with podman: from `podman run` to mail, through a stop and a start, and with a portal that is killed."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.servers import machine
from tests.servers.load import sending
from tests.servers.machine import Machine, missing, run
from tests.servers.packages import image
from tests.servers.servers import FIRST, HOP_PORT, all_arrived, in_thread, next_hop, until

pytestmark = [
    pytest.mark.servers,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
    pytest.mark.skipif(shutil.which("podman") is None, reason="no podman here"),
]
# A host without CAP_SYS_RESOURCE may not raise limits, and crun refuses hosts with both versions of cgroups.
LIMITS = ["--ulimit", "nofile=16384:16384", "--ulimit", "nproc=8192:8192"]
RUNTIME = ["--cgroup-manager=cgroupfs", *(["--runtime", "runc"] if shutil.which("runc") else [])]
STOP_S = 10
STATE = "waypost queue list; waypost destination list"
PORTAL = (
    "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q 'django [s]erve' && kill -9 ${p#/proc/}; done; true"
)


@dataclass
class Container:
    place: Path
    net: Machine  # its address

    def podman(self, *words: str, timeout_s: float = 120) -> str:
        store = ["--root", str(self.place / "store"), "--runroot", str(self.place / "run")]
        return run("podman", *store, *RUNTIME, *words, timeout_s=timeout_s)

    def start(self, network: str) -> None:
        environment = [f"--env=WAYPOST_NAMES={self.net.address}", "--env=WAYPOST_HOSTNAME=mail.example.org"]
        volume = f"{self.place / 'volume'}:/var/lib/waypost"
        self.podman(
            "run", "--detach", "--name", "waypost", f"--network=ns:{network}", *LIMITS, *environment, "--volume", volume,
            f"localhost/waypost:{FIRST}",
        )  # fmt: skip

    def shell(self, command: str) -> str:
        return self.podman("exec", "waypost", "sh", "-c", command)

    def is_healthy(self) -> bool:
        try:
            self.shell("/usr/lib/waypost/healthy")
        except AssertionError:
            return False
        return True

    def signs_in(self) -> int:
        context = ssl.create_default_context(cafile=str(self.place / "volume/etc/portal-tls/certificate.pem"))
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        url = f"https://{self.net.address}:8443/accounts/login/"
        with urllib.request.urlopen(url, context=context, timeout=30) as answer:
            status: int = answer.status
        return status


@pytest.fixture(scope="module")
def container() -> Iterator[Container]:
    archive = image(FIRST)
    place = Path(tempfile.mkdtemp(prefix="waypost-image-"))
    made = Container(place, Machine("image", 7, place, place))
    (place / "volume").mkdir()
    try:
        with machine._network(made.net) as network:
            made.podman("load", "--quiet", "--input", str(archive), timeout_s=300)
            made.start(network)
            yield made
            made.podman("rm", "--force", "--time", "2", "waypost")
            made.podman("rmi", "--all", "--force")
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", place], check=False)


async def test_it_starts_and_delivers_mail(container: Container, tell: Callable[[str], None]) -> None:
    began = time.monotonic()
    await until(container.is_healthy, "a healthy container")
    ready = time.monotonic()
    log = container.podman("logs", "waypost")
    assert "password     " in log
    assert "not started" not in log
    assert container.signs_in() == 200
    async with next_hop(container.net) as arrived:
        route = f'"*" = "smtp:[{container.net.host}]:{HOP_PORT}"'
        networks = 's/^networks = ./networks = ["10.25.0.0\\/16", /'
        await in_thread(
            container.shell,
            f"sed -i -e 's/^\"\\*\" = .*/{route}/' -e '{networks}' /etc/waypost/waypost.toml; waypost reload",
        )
        with sending(container.net.address, clients=1, port=2525) as load:
            await until(lambda: len(load.accepted) >= 3, "three messages to be accepted")
        tell(f"image: healthy after {ready - began:.1f} s; {await all_arrived(arrived, load)}")


def test_no_service_runs_as_root(container: Container) -> None:
    users = container.podman("top", "waypost", "user", "comm").splitlines()[1:]
    roots = {line.split()[1] for line in users if line.startswith("root")}
    assert roots <= {"s6-svscan", "s6-supervise", "run", "sleep"}, users


def test_each_service_of_the_package_runs(container: Container) -> None:
    services = set(container.shell("ls /run/waypost-services").split())
    assert {"core", "portal", "watch", "webhooks", "logrotate"} <= services
    states = container.shell(
        f"for each in {' '.join(services)}; do s6-svstat -o up /run/waypost-services/$each; done"
    ).split()
    assert states == ["true"] * len(services)


async def test_a_killed_portal_comes_back(container: Container) -> None:
    container.shell(PORTAL)
    await until(container.is_healthy, "the portal again")


async def test_mail_and_accounts_outlive_a_stop(container: Container, tell: Callable[[str], None]) -> None:
    with sending(container.net.address, clients=1, port=2525) as load:  # the next hop is away
        await until(lambda: len(load.accepted) >= 3, "three messages to be accepted")
    began = time.monotonic()
    container.podman("stop", "--time", str(STOP_S), "waypost")
    tell(f"stopped within {time.monotonic() - began:.1f} s")
    state: dict[str, Any] = json.loads(container.podman("inspect", "waypost"))[0]["State"]
    assert state["ExitCode"] == 0, "it was killed"
    container.podman("start", "waypost")
    await until(container.is_healthy, "a healthy container")
    assert "nothing to do: this host is set up" in container.podman("logs", "waypost")
    async with next_hop(container.net) as arrived:
        # Mail that was not tried before the stop is tried by all deliveries at once after it: the destination is dead then.
        resume = f"waypost destination resume 'smtp:[{container.net.host}]:{HOP_PORT}'"
        said = await in_thread(container.shell, f"{STATE}; {resume}; waypost queue retry --all --yes")
        try:
            await all_arrived(arrived, load)
        except AssertionError as error:
            now = await in_thread(container.shell, f"{STATE}; tail -n 100 /var/log/waypost/mail.log")
            raise AssertionError(f"{error}\n{said}\n{now}") from error
