"""What the process that watches does beside the watch: nothing of it delays a takeover, and one node alone tidies.

Proves law: lease-by-own-clock (docs/laws.md).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mailcore.config.known_nodes import read_seen
from mailcore.config.settings import Settings
from mailcore.nodes import closing, tidying
from mailcore.nodes.apart import Apart
from mailcore.nodes.parameters import parameters_of
from mailcore.nodes.tidying import TIDY_EVERY_S, TIDY_FIRST_S, Tidying
from mailcore.replication.connection import Connection
from mailcore.supervisor.child import store_settings
from mailcore.supervisor.pulse import PULSE
from tests.eventually import eventually_blocking
from tests.nodes.test_owner import home
from tests.nodes.test_watching import row_of
from tests.replication.cluster import Cluster
from tests.replication.writing import add_shard
from tests.test_tidy import ROOT

# The real process, in which what stands beside the watch is slow, hangs or fails, from the first moment.
PROCESS = """
import sys, time
from pathlib import Path
from mailcore.nodes import looking, spare, tidying
from mailcore.supervisor.child import stored_settings

def slow(*_, real=looking.look):
    time.sleep(0.7)
    return real(*_)

def fails(*_):
    raise OSError("broken on purpose")

def hangs(*_):
    time.sleep(1e6)

def bug(*_):
    raise ZeroDivisionError

tidying.TIDY_FIRST_S = 0.0
looking.look, tidying.tidy, taken = {"slow": (slow, hangs, hangs), "broken": (fails, bug, fails)}[sys.argv[2]]
spare.main(lambda *_: taken(), stored_settings(Path(sys.argv[1])), 1)
"""


@pytest.mark.parametrize("how", ["slow", "broken"])
def test_nothing_that_is_slow_or_fails_beside_the_watch_delays_a_takeover(
    cluster: Cluster, tmp_path: Path, how: str
) -> None:
    add_shard(cluster.primary, name="x", number=4, owner="dead/x/y/z")
    add_shard(cluster.primary, name="old", number=5, owner="")
    cluster.primary.sql("update waypost.shard set state = 'closed' where name = 'old'")
    settings = home(tmp_path, cluster, "a", "own")
    stored = settings.run_directory / "settings.json"
    store_settings(settings, stored)
    heard, writer = os.pipe()
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(stored), how], cwd=ROOT, stdout=said, stderr=said,
            env=os.environ | {"PYTHONPATH": str(ROOT), PULSE: str(writer)}, pass_fds=[writer],
        )  # fmt: skip
    os.close(writer)
    try:

        def is_taken() -> bool:
            assert process.poll() is None, (tmp_path / "said").read_text()
            return row_of(cluster)[0] == "a"

        eventually_blocking(is_taken, "the takeover", look_every_s=0.5)
    finally:
        process.kill()
        process.wait()
    with open(heard, "rb") as pulse:
        assert len(pulse.read()) > 5, "it has said each second that it goes on"
    seen = read_seen(settings.run_directory)
    assert seen is not None
    if how == "slow":
        assert "a" in [each.name for each in seen.nodes]
        return
    assert seen.fault == "broken on purpose"
    log = (settings.log_directory / "mail.jsonl").read_text()
    assert log.count("the state of the nodes cannot be read for the pages now: broken on purpose") == 1
    assert "ZeroDivisionError" in (tmp_path / "said").read_text()


def left(cluster: Cluster) -> list[str]:
    return sorted(file for (file,) in cluster.primary.sql("select file from waypost.chunk"))


@pytest.fixture
def settings(cluster: Cluster, tmp_path: Path) -> Settings:
    """Of a node, and a closed shard of which a killed command has left something."""
    add_shard(cluster.primary, name="x", number=4, owner="dead/x/y/z")
    cluster.primary.sql(
        "update waypost.shard set state = 'closed', owner = '';"
        "insert into waypost.chunk (shard, writer, n, part, kind, file, at, crc, bytes)"
        " select 'x', 'm', n, 0, 'a', f, 0, 0, 'bytes' from unnest(array['queue/journal/1.seg',"
        " 'events/dt=2001-01-01/e.parquet', 'events/dt=2999-01-01/e.parquet', 'spool/1f/A']) with ordinality t (f, n)"
    )
    return home(tmp_path, cluster, "a", "own")


def test_what_a_killed_command_has_left_of_a_closed_shard_is_freed_in_small_steps(
    cluster: Cluster, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(closing, "TIDY_ROWS", 1)
    add_shard(cluster.primary, name="y", number=5, owner="b/x/y/z")
    steps: list[list[str]] = []
    tidies = Tidying(settings, sleep=lambda _: steps.append(left(cluster)))
    assert tidies.once() == TIDY_FIRST_S, "the command itself may be under way"
    assert len(left(cluster)) == 4
    cluster.primary.sql(
        "insert into waypost.chunk (shard, writer, n, part, kind, file, at, crc, bytes) values"
        " ('x', 'm', 9, 0, 'a', 'queue/journal/2.seg', 0, 0, 'more'), ('y', 'm', 1, 0, 'a', 'queue/journal/1.seg', 0, 0, 'y')"
    )
    assert tidies.once() == TIDY_EVERY_S
    assert left(cluster) == ["events/dt=2999-01-01/e.parquet", "queue/journal/1.seg"], "that of y, which is open"
    assert len(steps) >= 2
    assert row_of(cluster)[2] == "closed"


def test_one_node_at_a_time_tidies(cluster: Cluster, settings: Settings) -> None:
    tidies = Tidying(settings)
    tidies.once()
    other = Connection.open(parameters_of(settings))
    other.run(tidying._ALONE, 5.0)
    assert tidies.once() == TIDY_EVERY_S
    assert len(left(cluster)) == 4, "another node does it"
    other.close()

    def is_tidy() -> bool:
        tidies.once()
        return left(cluster) == ["events/dt=2999-01-01/e.parquet"]

    eventually_blocking(is_tidy, "its end leaves it to us")


def test_a_fault_is_said_once_and_again_when_it_is_another_one(settings: Settings) -> None:
    errors: list[Exception | None] = [OSError("one"), OSError("one"), OSError("two"), None, OSError("two")]
    pauses = []

    def work() -> float:
        error = errors.pop(0)
        if error is not None:
            raise error
        return 7.0

    class Log:
        said: list[str] = []  # noqa: RUF012

        def shard_waits(self, words: str) -> None:
            self.said.append(words)

        def flush(self) -> None:
            pass

    log = Log()
    apart = Apart("name", "it cannot be done", work, settings)
    while errors:
        pauses.append(apart._once(log))  # type: ignore[arg-type]
    assert pauses == [1.0, 1.0, 1.0, 7.0, 1.0]
    assert log.said == [f"it cannot be done: {words}" for words in ("one", "two", "two")]
