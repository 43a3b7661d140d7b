"""PostgreSQL under Patroni, with etcd: three machines, with the settings that docs/nodes.md names."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

from tests.eventually import PATIENCE_S, eventually_blocking
from tests.nodes.machines import DATABASE, Machine, Networks, faked
from tests.replication.cluster import ROLE, SUPERUSER, programs

__all__ = ["PatroniCluster", "missing"]

USER = "postgres"  # of the servers; root may not run them
PATRONI_PORT, ETCD_PORT, PEER_PORT, PORT = 8008, 2379, 2380, 5432
PASSWORD = "secret"
DYNAMIC: dict[str, Any] = {
    "ttl": 20,
    "loop_wait": 5,
    "retry_timeout": 5,
    "primary_start_timeout": 0,
    "synchronous_mode": True,
    "synchronous_mode_strict": True,
    "synchronous_node_count": 1,
    "postgresql": {
        "use_pg_rewind": True,
        "parameters": {
            "wal_log_hints": "on",
            "shared_buffers": "16MB",
            "max_connections": 60,
            "max_wal_size": "256MB",
            "wal_receiver_status_interval": "1s",
            "tcp_user_timeout": "10s",
        },
    },
}


def missing() -> str:
    """Says which program is not here; "" when all are."""
    lacking = [name for name in ("patroni", "etcd") if shutil.which(name) is None]
    return f"missing: {', '.join(lacking)} (Debian's packages patroni and etcd-server)" if lacking else ""


def _api() -> str:
    """The API of etcd that Patroni is to use. Over v3, a primary that was cut off takes the lock back from the one that was
    promoted, before Patroni 3.0.3: it writes the key without a comparison (docs/decisions/0102).
    """
    told = subprocess.run(["patroni", "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(int(part) for part in told.split()[-1].split(".")[:3])
    return "etcd3" if version >= (3, 0, 3) else "etcd"


class PatroniCluster:
    """Three members. ``leader`` is the machine of the primary, as Patroni says."""

    def __init__(self, made: Networks, count: int = 3) -> None:
        self.machines = [made.machine(f"db{number + 1}", DATABASE) for number in range(count)]
        for machine in self.machines:
            shutil.chown(machine.directory, USER)
            self._configure(machine)

    def _configure(self, machine: Machine) -> None:
        address = machine.address(DATABASE)
        account = {"username": SUPERUSER, "password": PASSWORD}
        configuration = {
            "scope": "waypost",
            "name": machine.name,
            "restapi": {"listen": f"{address}:{PATRONI_PORT}", "connect_address": f"{address}:{PATRONI_PORT}"},
            _api(): {"hosts": [f"{each.address(DATABASE)}:{ETCD_PORT}" for each in self.machines]},
            "bootstrap": {"dcs": DYNAMIC, "initdb": [{"encoding": "UTF8"}, "data-checksums", "no-sync"]},
            "postgresql": {
                "listen": f"{address}:{PORT}",
                "connect_address": f"{address}:{PORT}",
                "data_dir": str(machine.directory / "data"),
                "bin_dir": str(programs()),
                "pgpass": str(machine.directory / "pgpass"),
                "authentication": {"superuser": account, "replication": account, "rewind": account},
                "parameters": {"unix_socket_directories": str(machine.directory)},
                "pg_hba": ["host all all 10.78.1.0/24 trust", "host replication all 10.78.1.0/24 trust"],
            },
            "watchdog": {"mode": "off"},  # the machines share a kernel, and its watchdog would end all of them
        }
        (machine.directory / "patroni.yml").write_text(json.dumps(configuration))  # JSON is YAML

    def addresses(self) -> list[str]:
        return [f"http://{machine.address(DATABASE)}:{PATRONI_PORT}" for machine in self.machines]

    def conninfo(self) -> str:
        hosts = ",".join(machine.address(DATABASE) for machine in self.machines)
        return f"host={hosts} dbname=waypost user={ROLE} sslmode=disable"

    # -- life and death

    def start(self) -> None:
        """Starts all, and makes role and database."""
        for machine in self.machines:
            self.start_etcd(machine)
        for machine in self.machines:
            self.start_patroni(machine)
        self.until_healthy()
        self.sql(f"create role {ROLE} login; grant pg_monitor to {ROLE}", database="postgres")
        self.sql(f"create database waypost owner {ROLE}", database="postgres")

    def start_etcd(self, machine: Machine) -> None:
        address = machine.address(DATABASE)
        members = ",".join(f"{each.name}=http://{each.address(DATABASE)}:{PEER_PORT}" for each in self.machines)
        machine.start(
            [
                "etcd", f"--name={machine.name}", f"--data-dir={machine.directory / 'etcd'}", "--log-level=warn", "--enable-v2",
                f"--listen-client-urls=http://{address}:{ETCD_PORT}", f"--initial-cluster={members}",
                f"--advertise-client-urls=http://{address}:{ETCD_PORT}",
                f"--listen-peer-urls=http://{address}:{PEER_PORT}",
                f"--initial-advertise-peer-urls=http://{address}:{PEER_PORT}",
            ],
            user=USER, log="etcd.log",
        )  # fmt: skip

    def start_patroni(self, machine: Machine, offset_s: float = 0.0) -> None:
        """Starts Patroni, which starts PostgreSQL. ``offset_s``: how wrong the clock of both is."""
        environment: Mapping[str, str] = faked(offset_s, machine.directory) if offset_s else {}
        machine.start(
            ["patroni", str(machine.directory / "patroni.yml")],
            user=USER,
            environment=environment,
            log="patroni.log",
        )

    def start_machine(self, machine: Machine, offset_s: float = 0.0) -> None:
        """After its death."""
        self.start_etcd(machine)
        self.start_patroni(machine, offset_s)

    # -- questions

    def ask(self, machine: Machine, method: str, path: str, body: object = None) -> Any:
        """Asks Patroni of a machine. Returns None if it does not answer."""
        connection = http.client.HTTPConnection(machine.address(DATABASE), PATRONI_PORT, timeout=1)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            return json.loads(connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def members(self) -> dict[str, str]:
        """Role of each member that runs, as the one says that is the primary; {} while none is, or several are.

        Others may have it from a server of etcd that was cut off.
        """
        answers = {machine.name: self.ask(machine, "GET", "/patroni") or {} for machine in self.machines}
        primaries = [name for name, answer in answers.items() if answer.get("role") in ("master", "primary")]
        for machine in self.machines:
            found = self.ask(machine, "GET", "/cluster") if primaries == [machine.name] else None
            if found is not None:
                return {
                    each["name"]: each["role"] for each in found["members"] if each["state"] in ("running", "streaming")
                }
        return {}

    def with_role(self, role: str) -> Machine | None:
        named = [name for name, its in self.members().items() if its == role]
        return next((machine for machine in self.machines if machine.name in named), None)

    @property
    def leader(self) -> Machine:
        return eventually_blocking(lambda: self.with_role("leader"), "a primary")  # type: ignore[return-value]

    def until_healthy(self, count: int = 0) -> None:
        """Until that many members run, one of them as a synchronous standby."""

        def healthy() -> bool:
            roles = list(self.members().values())
            return len(roles) >= (count or len(self.machines)) and {"leader", "sync_standby"} <= set(roles)

        eventually_blocking(healthy, lambda: f"a whole cluster; {self.members()}\n{self.said()}", look_every_s=0.5)
        eventually_blocking(self._keeps, "the primary to have a synchronous standby", look_every_s=0.5)

    def _keeps(self) -> bool:
        asked = "select count(*) from pg_stat_replication where sync_state = 'sync' and state = 'streaming'"
        with contextlib.suppress(AssertionError):  # none takes writes at this moment
            return self.sql(asked, database="postgres") != "0"
        return False

    def said(self) -> str:
        logs = (machine.directory / "patroni.log" for machine in self.machines)
        return "\n".join(f"{log.parent.name}: {log.read_text()[-1500:]}" for log in logs if log.exists())

    def settle(self, **values: object) -> None:
        """Changes Patroni's dynamic configuration, and waits until it is in force."""
        assert self.ask(self.leader, "PATCH", "/config", values) is not None
        asked = self.ask(self.leader, "GET", "/config")
        assert values.items() <= asked.items(), asked

    def sql(self, statement: str, *, database: str = "waypost") -> str:
        """What psql says to a statement at the primary, as a superuser who waits for no standby."""
        hosts = ",".join(machine.address(DATABASE) for machine in self.machines)
        words = [
            "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statement,
            f"host={hosts} user={SUPERUSER} dbname={database} target_session_attrs=read-write connect_timeout=3",
        ]  # fmt: skip
        environment = {"PATH": f"{programs()}:/usr/bin:/bin", "PGOPTIONS": "-c synchronous_commit=local"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, f"{statement}: {done.stderr}"
        return done.stdout.strip()
