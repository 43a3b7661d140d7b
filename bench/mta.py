"""The two that are compared: a Postfix of our own and a Waypost of our own, each in a directory below the benchmark's.

Both log every delivery to files, resolve no names, take mail from loopback for anywhere, and hand all of it to one next
hop. Both keep the durability they are shipped with: a message is synced before its 250.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from bench.processes import Trace, cpu_s, end_group, free_port, listening, tree, wait_until

__all__ = ["Apart", "Direct", "Mta", "Postfix", "Waypost", "WaypostThatSigns", "WaypostWithMilter", "waypost_command"]

START_S = 60.0


class Mta(Protocol):
    name: str
    port: int
    home: Path

    def start(self, trace: Trace | None = None) -> None:
        """Returns when it greets."""

    def stop(self) -> None:
        """Ends all its processes."""

    @property
    def pid(self) -> int:
        """Of the process above all others of it."""

    def cpu_s(self) -> float:
        """Of all its processes since the start."""

    def manager_cpu_s(self) -> float:
        """Of the one that owns the queue."""

    def database_cpu_s(self) -> float:
        """Of the database servers that work for this relay alone."""


class Direct:
    """No relay: the source sends to the sink, which is the most that any relay between them could do."""

    name = "direct"
    pid = 0

    def __init__(self, directory: Path, next_port: int) -> None:
        self.home = directory / "direct"
        self.home.mkdir()
        self.port = next_port

    def start(self, trace: Trace | None = None) -> None:
        """Does nothing."""

    def stop(self) -> None:
        """Does nothing."""

    def cpu_s(self) -> float:
        """Returns 0.0."""
        return 0.0

    def manager_cpu_s(self) -> float:
        """Returns 0.0."""
        return 0.0

    def database_cpu_s(self) -> float:
        """Returns 0.0."""
        return 0.0


MAIN_CF = """\
# Durability as shipped: cleanup syncs each queue file before the 250. Faster than shipped: no inflow delay, no DNS.
compatibility_level = 3.6
queue_directory = {home}/queue
data_directory = {home}/data
command_directory = /usr/sbin
daemon_directory = /usr/lib/postfix/sbin
maillog_file = {home}/log/mail.log
maillog_file_prefixes = {home}
syslog_name = bench-postfix
mail_owner = postfix
setgid_group = postdrop
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = bench.invalid
mydestination =
alias_maps =
alias_database =
local_recipient_maps =
mynetworks = 127.0.0.0/8
smtpd_relay_restrictions = permit_mynetworks, reject
smtpd_peername_lookup = no
disable_dns_lookups = yes
smtp_dns_support_level = disabled
relayhost = [127.0.0.1]:{next_port}
in_flow_delay = 0
smtpd_client_connection_count_limit = 0
smtpd_client_connection_rate_limit = 0
minimal_backoff_time = 300s
smtputf8_enable = yes
biff = no
"""

MASTER_CF = """\
127.0.0.1:{port} inet n - n - - smtpd
pickup    unix n - n 60 1 pickup
cleanup   unix n - n - 0 cleanup
qmgr      unix n - n 300 1 qmgr
tlsmgr    unix - - n 1000? 1 tlsmgr
rewrite   unix - - n - - trivial-rewrite
bounce    unix - - n - 0 bounce
defer     unix - - n - 0 bounce
trace     unix - - n - 0 bounce
verify    unix - - n - 1 verify
flush     unix n - n 1000? 0 flush
proxymap  unix - - n - - proxymap
proxywrite unix - - n - 1 proxymap
smtp      unix - - n - - smtp
relay     unix - - n - - smtp
showq     unix n - n - - showq
error     unix - - n - - error
retry     unix - - n - - error
discard   unix - - n - - discard
local     unix - n n - - local
virtual   unix - n n - - virtual
anvil     unix - - n - 1 anvil
scache    unix - - n - 1 scache
postlog   unix-dgram n - n - 1 postlogd
"""


class Postfix:
    """Debian's Postfix with a configuration directory of its own; nothing of the system's instance is touched."""

    name = "postfix"

    def __init__(self, directory: Path, next_port: int) -> None:
        self.home = directory / "postfix"
        self.port = free_port()
        for part in ("etc", "queue", "data", "log"):
            (self.home / part).mkdir(parents=True)
        shutil.chown(self.home / "data", "postfix", "postfix")
        etc = self.home / "etc"
        (etc / "main.cf").write_text(MAIN_CF.format(home=self.home, next_port=next_port))
        (etc / "master.cf").write_text(MASTER_CF.format(port=self.port))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> Path:
        """Returns its configuration directory."""
        return self.home / "etc"

    @property
    def log(self) -> Path:
        """Returns the file of its log."""
        return self.home / "log/mail.log"

    @staticmethod
    def missing() -> str:
        """Why it cannot run here; "" when it can."""
        if shutil.which("postfix") is None:
            return "postfix is not installed: apt-get install postfix"
        return "" if os.geteuid() == 0 else "Postfix's master wants root"

    @property
    def pid(self) -> int:
        return int((self.home / "queue/pid/master.pid").read_text())

    def start(self, trace: Trace | None = None) -> None:
        command = ["postfix", "-c", str(self.home / "etc"), "start-fg"]
        if trace is not None:
            command = trace.command(command)
        with (self.home / "log/start").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        wait_until(lambda: listening(self.port), f"Postfix's greeting on {self.port}", START_S)

    def stop(self) -> None:
        subprocess.run(["postfix", "-c", str(self.home / "etc"), "abort"], check=False, capture_output=True, timeout=60)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            end_group(self._process)
            self._process = None

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def manager_cpu_s(self) -> float:
        for pid in tree(self.pid):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "qmgr":
                    return cpu_s(pid)
        return 0.0

    def database_cpu_s(self) -> float:
        return 0.0


def waypost_command() -> list[str]:
    """The ``waypost`` beside this interpreter."""
    return [str(Path(sys.executable).with_name("waypost"))]


class Waypost:
    """``waypost mailcore`` with its defaults; ``more`` is further TOML, ``receiver`` that of its section.

    ``checkout``: the source of another state of the project, to be compared with this one. ``name``: of one among several.
    """

    name = "waypost"

    def __init__(
        self,
        directory: Path,
        next_port: int,
        more: str = "",
        checkout: Path | None = None,
        receiver: str = "",
        name: str = "",
    ) -> None:
        if checkout is not None:
            self.name = "checkout"
        self.name = name or self.name
        self._checkout = checkout
        own = self.name.replace(" ", "-")
        self.home = directory / own
        self.home.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.config = directory / f"{own}.toml"
        lines = [
            f"home = {json.dumps(str(self.home))}",
            "[receiver]",
            f'listen = ["127.0.0.1:{self.port}"]',
            receiver,
            "[routes]",
            f'"*" = "smtp:[127.0.0.1]:{next_port}"',
            more,
        ]
        self.config.write_text("\n".join(lines) + "\n")
        self._out = directory / f"{own}.out"
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def missing() -> str:
        """Why it cannot run here; "" when it can."""
        command = waypost_command()
        if not Path(command[0]).exists():
            return f"{command[0]} is missing: pip install -e ."
        done = subprocess.run([*command, "mailcore", "--help"], check=False, capture_output=True, timeout=60)
        return "" if done.returncode == 0 else "waypost mailcore does not run here yet"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, trace: Trace | None = None) -> None:
        self.launch(trace)
        # The supervisor listens before it starts the processes and writes down their pids.
        started = self.home / "run" / "processes.json"
        wait_until(
            lambda: (listening(self.port) and started.exists()) or not self.alive(),
            f"Waypost's greeting on {self.port}",
            START_S,
        )
        if not self.alive():
            raise RuntimeError("waypost mailcore ended at once:\n" + self._out.read_text()[-2000:])

    def launch(self, trace: Trace | None = None) -> None:
        """Starts it and does not wait."""
        command = [*waypost_command(), "mailcore", "--config", str(self.config)]
        if trace is not None:
            command = trace.command(command)
        environment = os.environ.copy()
        if self._checkout is not None:  # the script finds it by the one, its children (python -m) by the other
            environment["PYTHONPATH"] = str(self._checkout)
        with self._out.open("ab") as out:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=out, start_new_session=True, cwd=self._checkout, env=environment
            )

    @property
    def log(self) -> Path:
        """Returns the file of its log for programs."""
        return self.home / "log/mail.jsonl"

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """kill -9 of everything at once."""
        if self._process is not None:
            end_group(self._process, signal.SIGKILL)
            self._process = None

    def stop(self) -> None:
        if self._process is not None:
            end_group(self._process, signal.SIGTERM)
            self._process = None

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def manager_cpu_s(self) -> float:
        processes = json.loads((self.home / "run" / "processes.json").read_text())
        return sum(cpu_s(pid) for name, pid in processes.items() if name.partition("@")[0] == "manager")

    def database_cpu_s(self) -> float:
        return 0.0


class Apart:
    """Two Wayposts that share nothing but the machine: what two queues cost there without any code of ours between them."""

    name = "2 apart"

    def __init__(self, directory: Path, next_port: int) -> None:
        self._both = [Waypost(directory, next_port, name=f"apart {number}") for number in (1, 2)]
        self.home, self.port = self._both[0].home, self._both[0].port
        self.ports = [each.port for each in self._both]

    @property
    def pid(self) -> int:
        return self._both[0].pid

    def start(self, trace: Trace | None = None) -> None:
        for each in self._both:
            each.start(trace)

    def stop(self) -> None:
        for each in self._both:
            each.stop()

    def cpu_s(self) -> float:
        return sum(each.cpu_s() for each in self._both)

    def manager_cpu_s(self) -> float:
        return sum(each.manager_cpu_s() for each in self._both)

    def database_cpu_s(self) -> float:
        return 0.0


class WaypostWithMilter(Waypost):
    """Waypost with one milter that accepts all and leaves no step out. The milter's own CPU is not counted."""

    name = "milter"

    def __init__(self, directory: Path, next_port: int) -> None:
        self._milter_port = free_port()
        port = free_port()
        listener = f'[[listener]]\naddress = "127.0.0.1:{port}"\nmilters = ["inet:127.0.0.1:{self._milter_port}"]'
        super().__init__(directory, next_port, listener)
        self.port = port
        self._milter: subprocess.Popen[bytes] | None = None

    def launch(self, trace: Trace | None = None) -> None:
        command = [sys.executable, "-m", "bench.accepting_milter", str(self._milter_port)]
        self._milter = subprocess.Popen(command, start_new_session=True)
        super().launch(trace)

    def stop(self) -> None:
        super().stop()
        if self._milter is not None:
            end_group(self._milter, signal.SIGTERM)
            self._milter = None


class WaypostThatSigns(Waypost):
    """Waypost with a DKIM key of 2 048 bits (RSA) for the sender's domain: each message gets a signature of its own."""

    name = "dkim"

    def __init__(self, directory: Path, next_port: int, domain: str) -> None:
        key = directory / "dkim.pem"
        subprocess.run(
            [*waypost_command(), "dkim", "new", domain, "bench", "--key", str(key)], check=True, capture_output=True
        )
        section = f'[[dkim]]\ndomain = "{domain}"\nselector = "bench"\nkey = {json.dumps(str(key))}'
        super().__init__(directory, next_port, section)
