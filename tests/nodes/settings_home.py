"""The homes of nodes whose settings are looked at by a test, without processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest

from mailcore.config.load import load, load_managed, managed_path
from mailcore.config.managed_history import ManagedHistory, State
from mailcore.config.settings import Settings
from mailcore.config.settings_files import SettingsFiles
from mailcore.config.shared_settings import MANAGED, KindStatus, status_in
from mailcore.control.change_faults import faults_here
from mailcore.control.kept_store import KeptStore
from mailcore.log.disk import Disk
from mailcore.nodes import joining
from mailcore.nodes.decision import GIVE, Decision, decide
from mailcore.nodes.settings_store import SettingsStore
from mailcore.nodes.taking import Taking
from mailcore.replication.connection import Connection
from mailcore.replication.settings_rows import read_heads
from mailcore.supervisor.child import SETTINGS_NAME, store_settings
from tests.end_to_end.appliance import free_port
from tests.nodes.node import conninfo_of
from tests.replication.cluster import Cluster

FILES = SettingsFiles(partial(load, look_at_certificate=False), load_managed, managed_path)
LIMIT = "[receiver]\nrecipient_limit = {}\n"


@dataclass
class Home:
    """The home of a node, and what looks at its settings."""

    name: str
    config: Path
    settings: Settings
    connection: Connection
    lines: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    reloads: int = 0
    taking: Taking = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self, disk: Disk | None = None) -> None:
        """As after a start of the process."""

        def reload() -> None:
            self.reloads += 1
            store_settings(load(self.config), self.settings.run_directory / SETTINGS_NAME)

        kept = KeptStore(self.settings.home)
        self.taking = Taking(
            self.settings,
            FILES,
            kept,
            faults=faults_here,
            say=self.lines.append,
            warn=self.warnings.append,
            reload=reload,
            disk=disk,
        )

    def look(self) -> KindStatus:
        """Until nothing is left to do: what is known of the managed settings then."""
        return self.look_at(MANAGED)

    def look_at(self, kind: str) -> KindStatus:
        for _ in range(4):
            self.taking.look(self.connection)
        return self.status(kind)

    def status(self, kind: str) -> KindStatus:
        status = status_in(self.settings.run_directory)
        assert status is not None
        return status.kinds[kind]

    @property
    def managed(self) -> Path:
        return self.settings.home / "managed.toml"

    @property
    def text(self) -> str:
        return self.managed.read_text() if self.managed.exists() else ""

    @property
    def store(self) -> SettingsStore:
        return SettingsStore(self.settings)

    def change(self, text: str, kind: str = MANAGED, who: str = "alice") -> State:
        """As the process that makes a change, which is killed behind the commit."""
        with self.store.changing(kind) as change:
            return change.write(State("0" * 16, time.time(), who, "a reason", [], text, node=self.name))

    def give(self, kind: str = MANAGED, why: str = "") -> None:
        """As waypost node settings --give."""
        decide(self.settings, kind, Decision(GIVE, "dora", why, read_heads(self.connection).get(kind, 0)))

    def edit(self, text: str) -> None:
        self.managed.write_text(text)

    def history(self) -> list[State]:
        return ManagedHistory(self.settings.home, Disk()).read()[0]

    def limit(self) -> int:
        return load(self.config).receiver.recipient_limit


Data = bytes | bytearray | memoryview


class Made(Protocol):
    def __call__(self, name: str, *, joins: bool = True) -> Home: ...


@pytest.fixture
def made(cluster: Cluster, tmp_path: Path) -> Iterator[Made]:
    homes: list[Home] = []

    def make(name: str, *, joins: bool = True) -> Home:
        own = tmp_path / name
        for below in ("home", "home/run", "home/log", "home/queue", "home/spool"):
            (own / below).mkdir(parents=True, exist_ok=True)
        config = own / "waypost.toml"
        config.write_text(
            f'home = "home"\n[nodes]\ndatabase = "{conninfo_of(cluster)}"\nnode = "{name}"\n'
            f'listen = "127.0.0.1:{free_port()}"\n'
        )
        settings = load(config)
        store_settings(settings, settings.run_directory / SETTINGS_NAME)
        home = Home(name, config, settings, cluster.connect())
        if joins and homes:
            joining.join(settings, joining.add(homes[0].settings, name, 5))
        elif joins:
            joining.begin(settings, again=False)
        homes.append(home)
        return home

    yield make
    for home in homes:
        home.connection.close()
