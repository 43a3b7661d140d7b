"""A real PostgreSQL with a synchronous standby, on Unix sockets in a directory that is gone at the end.

Two servers are made once, and copied for each test that destroys them. They are killed as a whole: every process at once.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mailcore.replication.connection import Connection
from mailcore.replication.parameters import Host, StoreParameters
from mailcore.replication.schema import make_schema
from tests.eventually import PATIENCE_S, eventually_blocking

__all__ = ["Cluster", "Server", "Template", "made_template", "programs"]

SUPERUSER = "postgres"
ROLE = "waypost"  # has no rights but to its database
PORT = 5432  # the name of the socket
SETTINGS = """
listen_addresses = ''
unix_socket_permissions = 0777
max_connections = 60
shared_buffers = 16MB
max_wal_size = 256MB
wal_keep_size = 64MB
hot_standby = on
wal_receiver_status_interval = 1s
wal_retrieve_retry_interval = 100ms
synchronous_standby_names = '*'
autovacuum = off
log_min_messages = warning
"""


def programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    assert found, "Debian's package postgresql is missing; ./test installs it"
    return found[-1].parent


def _user() -> str | None:
    """A user for the servers: root may not run them."""
    if os.geteuid() != 0:
        return None
    return "postgres" if any(entry.pw_name == "postgres" for entry in pwd.getpwall()) else "nobody"


def _run(directory: Path, *command: str | Path, timeout_s: float = PATIENCE_S) -> None:
    done = subprocess.run(
        command, user=_user(), cwd=directory, env=_environment(), capture_output=True, text=True, timeout=timeout_s,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}


class Server:
    """One server; its directory holds data, socket and log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped: list[int] = []

    @property
    def host(self) -> Host:
        return Host(str(self.directory), PORT)

    def start(self, *, ready: bool = True) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [programs() / "postgres", "-D", self.data, "-k", self.directory, "-p", str(PORT)],
                user=_user(), env=_environment(), cwd=self.directory, stdout=log, stderr=log,
            )  # fmt: skip
        if ready:
            eventually_blocking(self._answers, (self.directory / "log").read_text)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "log").read_text()
        command = [str(programs() / "pg_isready"), "-h", str(self.directory), "-p", str(PORT), "-q"]
        return subprocess.run(command, check=False, timeout=PATIENCE_S).returncode == 0

    def children(self) -> list[int]:
        assert self.process is not None
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return [int(word) for word in listed.stdout.split()]

    def kill(self) -> None:
        """Kills every process, as a power failure would, except that the disk keeps what was written."""
        if self.process is None:
            return
        children = self.children()
        for pid in [self.process.pid, *children]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        eventually_blocking(lambda: not any(Path(f"/proc/{pid}/status").exists() and _alive(pid) for pid in children))
        self.process = None
        self.stopped = []
        self._free_shared_memory()
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _free_shared_memory(self) -> None:
        """Removes the segment that a killed server leaves: the kernel has room for a few thousand, then no server starts."""
        with suppress(FileNotFoundError, IndexError):
            segment = (self.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
            subprocess.run(["ipcrm", "-m", segment], check=False, stderr=subprocess.DEVNULL)

    def stop(self) -> None:
        _run(self.directory, programs() / "pg_ctl", "stop", "-D", self.data, "-m", "fast", "-w")
        assert self.process is not None
        self.process.wait()
        self.process = None

    def promote(self) -> None:
        _run(self.directory, programs() / "pg_ctl", "promote", "-D", self.data, "-w")

    def pause_receiver(self) -> None:
        """Stops what a standby receives with, so that commits wait."""
        self.stopped = eventually_blocking(self._receivers, "the standby receives")
        for pid in self.stopped:
            os.kill(pid, signal.SIGSTOP)

    def resume_receiver(self) -> None:
        for pid in self.stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.stopped = []

    def _receivers(self) -> list[int]:
        found = self.sql("select pid from pg_stat_wal_receiver where status = 'streaming'")
        return [int(row[0]) for row in found]

    def sql(self, statement: str, *, user: str = SUPERUSER, database: str = "waypost") -> list[tuple[str, ...]]:
        """Rows of a statement, as a superuser who waits for no standby."""
        words = [
            "psql", "--no-psqlrc", "-X", "-A", "-t", "-q", "-F", "\t", "-v", "ON_ERROR_STOP=1",
            "-h", str(self.directory), "-p", str(PORT), "-U", user, "-d", database, "-c", statement,
        ]  # fmt: skip
        environment = _environment() | {"PGOPTIONS": "-c synchronous_commit=local"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, f"{statement}: {done.stderr}"
        return [tuple(line.split("\t")) for line in done.stdout.splitlines()]

    def settle(self, setting: str) -> None:
        """Adds a line to its configuration, and waits until it is in force."""
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"\n{setting}\n")
        name, _, value = setting.partition(" = ")
        self.sql("select pg_reload_conf()")
        shown = value.strip("'")
        eventually_blocking(lambda: self.sql(f"show {name}") in ([(shown,)], [] if not shown else [(shown,)]))


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


class Cluster:
    """A primary and its synchronous standby, with the tables of the store."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.primary = Server(directory / "a")
        self.standby = Server(directory / "b")
        self.others: list[Server] = []

    def start(self) -> None:
        self.primary.start()
        self.standby.start()
        self.wait_for_standby(self.primary)

    def wait_for_standby(self, server: Server) -> None:
        asked = (
            "select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum') and state = 'streaming'"
        )
        eventually_blocking(lambda: server.sql(asked) != [("0",)], "a synchronous standby is connected")

    def add_standby(self, primary: Server, name: str = "c", timeout_s: float = PATIENCE_S) -> Server:
        """Makes a new standby of a server, within ``timeout_s``, and starts it."""
        server = Server(self.directory / name)
        server.directory.mkdir()
        _give(server.directory)
        _run(
            server.directory, programs() / "pg_basebackup", "-h", primary.directory, "-p", str(PORT), "-U", SUPERUSER,
            "-D", server.data, "-c", "fast", "-X", "stream", "--no-sync",
            timeout_s=timeout_s,
        )  # fmt: skip
        _follow(server, primary)
        server.start()
        self.others.append(server)
        self.wait_for_standby(primary)
        return server

    @property
    def servers(self) -> list[Server]:
        return [self.primary, self.standby, *self.others]

    def parameters(self, **more: object) -> StoreParameters:
        hosts = tuple(server.host for server in self.servers)
        given: dict[str, object] = {"hosts": hosts, "pause_s": 0.02, "pause_s_max": 0.2, "tls_mode": "disable"} | more
        return StoreParameters(**given)  # type: ignore[arg-type]

    def connect(self, **more: object) -> Connection:
        return Connection.open(self.parameters(**more))

    def empty(self) -> None:
        """Makes the tables of the store empty."""
        self.primary.sql(
            "truncate waypost.chunk, waypost.state, waypost.writer, waypost.shard, waypost.giver, waypost.node,"
            " waypost.node_authority, waypost.node_trust, waypost.node_token, waypost.settings, waypost.settings_state,"
            " waypost.settings_node, waypost.kept_file"
        )

    def kill(self) -> None:
        for server in self.servers:
            server.resume_receiver()
            server.kill()


def _give(path: Path) -> None:
    if (user := _user()) is not None:
        shutil.chown(path, user)


def _follow(server: Server, primary: Server) -> None:
    (server.data / "standby.signal").touch()
    _give(server.data / "standby.signal")
    with (server.data / "postgresql.auto.conf").open("a") as file:
        file.write(f"primary_conninfo = 'host={primary.directory} port={PORT} user={SUPERUSER}'\n")


class Template:
    """Two stopped servers that know of each other by place, to be copied."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextmanager
    def copy(self, name: str, *, standby: bool = True) -> Iterator[Cluster]:
        """A running cluster. ``standby`` is False for a primary that has none, and waits for none."""
        directory = self.directory / name
        cluster = Cluster(directory)
        directory.mkdir()
        _give(directory)
        os.chmod(directory, 0o755)
        try:
            for server in (cluster.primary, cluster.standby):
                subprocess.run(["cp", "-a", self.directory / "template", server.directory], check=True)
            _follow(cluster.standby, cluster.primary)
            if standby:
                cluster.start()
            else:
                cluster.primary.start()
            yield cluster
        finally:
            cluster.kill()
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def made_template(below: Path | None = None, *, more: str = "", segment_mb: int = 1) -> Iterator[Template]:
    """Makes the servers below a directory, by default that of temporary files. ``more``: settings that replace ours."""
    directory = Path(tempfile.mkdtemp(prefix="wp-store-", dir=below))
    os.chmod(directory, 0o755)
    _give(directory)
    server = Server(directory / "template")
    try:
        server.directory.mkdir(mode=0o755)
        _give(server.directory)
        _run(
            server.directory, programs() / "initdb", "--pgdata", server.data, "--auth", "trust", "--username", SUPERUSER,
            "--encoding", "UTF8", "--no-sync", "--data-checksums", "--wal-segsize", str(segment_mb),
        )  # fmt: skip
        with (server.data / "postgresql.conf").open("a") as file:
            file.write(SETTINGS + more)
        server.start()
        server.sql(f"create role {ROLE} login; grant pg_read_all_stats to {ROLE}", database="postgres")
        server.sql(f"create database waypost owner {ROLE}", database="postgres")
        # No standby is there yet, and the statements wait for none.
        server.settle("synchronous_standby_names = ''")
        connection = Connection.open(StoreParameters(hosts=(server.host,), tls_mode="disable"))
        make_schema(connection)
        connection.close()
        server.stop()
        with (server.data / "postgresql.conf").open("a") as file:
            file.write("synchronous_standby_names = '*'\n")
        yield Template(directory)
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def rows(answers: Sequence[tuple[str, ...]]) -> list[str]:
    """First columns."""
    return [row[0] for row in answers]
