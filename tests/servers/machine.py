"""A Debian in systemd-nspawn, with a network of its own and an SSH server: what an operator has before Ansible comes.

The tree is made once by mmdebstrap and copied for each machine. A machine reaches only this host; its packages come through
a proxy here (``tests/servers/proxy.py``), which takes Debian from where this host's apt takes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BARE", "PACKAGES", "Machine", "base_tree", "machine", "missing"]

MIRROR = "http://deb.debian.org/debian"
BARE = "systemd,systemd-sysv,dbus,openssh-server,iproute2"  # a system, and a way into it
PACKAGES = f"{BARE},python3,python3-apt,ca-certificates,procps"  # what Ansible needs
BOOT_S = 90.0
OPEN_S = 3.0
PROXY_PORT = 3142
# A machine that is to start again ends with this status, when its unit is not systemd's to start.
AGAIN = 'trap : TERM; while "$@"; [ $? = 133 ]; do :; done'
BOOTED = "systemctl show --property=UserspaceTimestampMonotonic --value"


def missing() -> str:
    """Why there can be no machine here; "" when there can."""
    if os.geteuid() != 0:
        return "only root can start machines"
    lacking = [name for name in ("mmdebstrap", "systemd-nspawn", "ip", "ssh") if shutil.which(name) is None]
    return f"missing: {', '.join(lacking)}" if lacking else ""


def run(*command: str | Path, timeout_s: float = 60.0) -> str:
    """Its output. Raises AssertionError with what it said."""
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def base_tree(directory: Path, suite: str, packages: str = PACKAGES) -> Path:
    """The tree that machines are copies of; made when it is not there."""
    tree = directory / f"waypost-{'bare-' if packages == BARE else ''}{suite}"
    if not tree.exists():
        new = tree.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        run("mmdebstrap", "--variant=minbase", f"--include={packages}", suite, new, MIRROR, timeout_s=900)
        new.rename(tree)
    return tree


@dataclass(frozen=True)
class Machine:
    """Number N has the address 10.25.N.2, this host is 10.25.N.1 for it."""

    name: str
    number: int
    tree: Path
    key: Path

    @property
    def address(self) -> str:
        return f"10.25.{self.number}.2"

    @property
    def host(self) -> str:
        return f"10.25.{self.number}.1"

    @property
    def ssh_options(self) -> list[str]:
        quiet = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "ConnectTimeout=5")
        return ["-i", str(self.key), *(word for option in quiet for word in ("-o", option))]

    def open(self, port: int) -> bool:
        """Whether somebody answers there within OPEN_S; a firewall lets one wait."""
        try:
            with socket.create_connection((self.address, port), OPEN_S):
                return True
        except OSError:
            return False

    def reboot(self) -> None:
        began = self.ssh(BOOTED)
        with contextlib.suppress(AssertionError):  # the connection may end with it
            self.ssh("systemctl reboot")
        end = time.monotonic() + BOOT_S
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                if self.ssh(BOOTED, timeout_s=10) != began:
                    return
            time.sleep(0.3)
        raise AssertionError(f"{self.name} did not start again")

    def answers(self) -> bool:
        command = ["ssh", *self.ssh_options, f"root@{self.address}", "true"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            return (
                subprocess.run(
                    command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
                ).returncode
                == 0
            )
        return False

    def ssh(self, command: str, timeout_s: float = 120.0) -> str:
        return run("ssh", *self.ssh_options, f"root@{self.address}", command, timeout_s=timeout_s)


def _prepare(made: Machine, base: Path) -> None:
    tree = made.tree
    run("cp", "-a", "--reflink=auto", base, tree, timeout_s=300)
    (tree / "etc/hostname").write_text(f"{made.name}\n")
    (tree / "etc/hosts").write_text(f"127.0.0.1 localhost\n{made.address} {made.name}.example {made.name}\n")
    (tree / "etc/resolv.conf").unlink(missing_ok=True)
    (tree / "etc/resolv.conf").write_text(f"nameserver {made.host}\n")
    (tree / "etc/machine-id").write_text("")
    (tree / "root/.ssh").mkdir(mode=0o700, exist_ok=True)
    shutil.copy(made.key.with_suffix(".pub"), tree / "root/.ssh/authorized_keys")
    (tree / "etc/apt/apt.conf.d/99proxy").write_text(f'Acquire::http::Proxy "http://{made.host}:{PROXY_PORT}";\n')
    os.utime(tree / "var/lib/apt/lists", (0, 0))  # it has heard of no packages yet
    run("chroot", tree, "ssh-keygen", "-A")


@contextlib.contextmanager
def _network(made: Machine) -> Iterator[str]:
    space, ours = f"waypost{made.number}", f"waypost{made.number}"
    run("ip", "netns", "add", space)
    try:
        run("ip", "link", "add", ours, "type", "veth", "peer", "name", "host0", "netns", space)
        run("ip", "addr", "add", f"{made.host}/24", "dev", ours)
        run("ip", "link", "set", ours, "up")
        run("ip", "-n", space, "addr", "add", f"{made.address}/24", "dev", "host0")
        run("ip", "-n", space, "link", "set", "host0", "up")
        run("ip", "-n", space, "link", "set", "lo", "up")
        yield f"/run/netns/{space}"
    finally:
        run("ip", "netns", "delete", space)
        with contextlib.suppress(AssertionError):  # its other end took it along
            run("ip", "link", "delete", ours)


@contextlib.contextmanager
def machine(name: str, number: int, directory: Path, base: Path, key: Path) -> Iterator[Machine]:
    """Booted, and answering to SSH; gone afterwards."""
    made = Machine(name, number, directory / name, key)
    _prepare(made, base)
    with _network(made) as network, (directory / f"{name}.console").open("wb") as console:
        command: Sequence[str] = [
            *(
                "sh",
                "-c",
                AGAIN,
                "sh",
                "systemd-nspawn",
                "--quiet",
                "--boot",
                "--register=no",
                "--keep-unit",
                "--console=pipe",
            ),
            *(f"--directory={made.tree}", f"--machine={name}", f"--network-namespace-path={network}"),
            *("--link-journal=no", "--resolv-conf=off", "--timezone=off", "--capability=CAP_NET_ADMIN"),
            "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1",  # as on a kernel's command line: this host may have no other cgroups
        ]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True
        )
        try:
            _wait(made, process)
            yield made
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # once: power off
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)
    shutil.rmtree(made.tree)


def _wait(made: Machine, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + BOOT_S
    while not made.answers():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{made.name} does not answer; its console says why")
        time.sleep(0.3)
