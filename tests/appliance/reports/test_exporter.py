"""What is asked of the core's exporter: midnights of the zone, and a cut before a report; it may be away, or refuse."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from appliance.reports import exporter, tasks
from appliance.reports.models import Preferences
from mailcore.config.known_shards import KnownShard, forget_known, write_known
from mailcore.faults import Code
from tests.appliance.fake_core import FakeCore, Refusal

pytestmark = pytest.mark.django_db


@pytest.fixture
def core(settings: Any) -> FakeCore:
    settings.EXPORTER_SOCKET = settings.CONTROL_SOCKET
    return FakeCore({"zone": {"zone": ""}, "cut": {"rows": 1}})


def test_each_minute_the_core_is_told_in_which_zone_days_begin(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appliance.reports.runs.ring", lambda asked: True)
    with core:
        tasks.sign_of_life()
        Preferences.objects.create(zone="Asia/Kolkata")
        tasks.sign_of_life()
    assert core.asked("zone") == [{"zone": "UTC"}, {"zone": "Asia/Kolkata"}]
    tasks.sign_of_life()  # nobody is there


@pytest.fixture
def shards(settings: Any) -> Iterator[list[Path]]:
    """The sockets of the exporters of two shards; there are none yet."""
    run = settings.EXPORTER_SOCKET.parent
    known = [KnownShard(number, run / "shards" / f"{number:02}", True) for number in (0, 1)]
    for shard in known:
        shard.run_directory.mkdir(parents=True, exist_ok=True)
    write_known(run, known)
    sockets = [shard.run_directory / settings.EXPORTER_SOCKET.name for shard in known]
    yield sockets
    forget_known(run)
    for path in sockets:
        path.unlink(missing_ok=True)


def test_all_shards_are_asked(core: FakeCore, settings: Any, shards: list[Path]) -> None:
    for path in shards:
        path.symlink_to(settings.EXPORTER_SOCKET)
    with core:
        assert exporter.cut("administrator", "Europe/Vienna") == ""
        assert (len(core.asked("zone")), len(core.asked("cut"))) == (2, 2)


@pytest.mark.parametrize("away", [0, 1])
def test_a_shard_that_is_away_is_named_and_the_others_are_counted(
    core: FakeCore, settings: Any, shards: list[Path], away: int
) -> None:
    shards[1 - away].symlink_to(settings.EXPORTER_SOCKET)
    with core:
        assert exporter.cut("administrator", "Europe/Vienna").startswith(f"shard {away}: ")
        assert len(core.asked("cut")) == 1


def test_a_cut_is_asked_for_in_the_zone_in_force(core: FakeCore, caplog: pytest.LogCaptureFixture) -> None:
    with core:
        assert exporter.cut("administrator", "Europe/Vienna") == ""
        assert (core.asked("zone"), core.asked("cut")) == ([{"zone": "Europe/Vienna"}], [{"ids": False}])
        core.answers = {"zone": Refusal("'Europe/Vienna' is no time zone"), "cut": Refusal("the disk is full")}
        assert "the disk is full" in exporter.cut("administrator", "Europe/Vienna")
    assert "the core could not export events: " in caplog.text
    assert "the disk is full" in caplog.text


# -- the events of all nodes


def test_the_events_of_all_nodes_are_fetched_in_steps(core: FakeCore) -> None:
    answers = iter([True, True, False])
    core.answers["gather"] = lambda _: {"more": next(answers), "fetched_bytes": 1, "missing": 0, "shards": 2}
    heard = iter([True, True, True])
    with core:
        assert exporter.gather(date(2026, 11, 20), lambda: next(heard)) == ("", "")
    asked = {"since": "2026-11-09", "until": "2026-11-22", "keep": "2026-11-09"}
    assert (core.asked("gather"), list(heard)) == ([asked] * 3, [])
    assert exporter.gather(date(2026, 11, 20), lambda: False).fault == "stopped"


def test_what_could_not_be_fetched_is_said(core: FakeCore) -> None:
    core.answers["gather"] = {"more": False, "fetched_bytes": 1, "missing": 2, "shards": 2}
    with core:
        assert exporter.gather(date(2026, 11, 20)) == ("", "2 event files could not be fetched from the database")
        core.answers["gather"] = Refusal("no server of the database takes writes", Code.UNAVAILABLE)
        words = exporter.gather(date(2026, 11, 20))
    assert words == ("the events of all nodes could not be fetched: no server of the database takes writes", "")
    assert exporter.gather(date(2026, 11, 20)).fault.endswith("no exporter runs on this node")


def test_an_exporter_that_fetches_for_another_is_waited_for(core: FakeCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "BUSY_S", 0.01)
    done = {"more": False, "fetched_bytes": 0, "missing": 0, "shards": 1}
    answers = iter([Refusal("busy", Code.BUSY), done])
    core.answers["gather"] = lambda _: next(answers)
    with core:
        assert exporter.gather(date(2026, 11, 20)) == ("", "")
