"""What is asked of the core's exporter: midnights of the zone, and a cut before a report; it may be away, or refuse."""

from __future__ import annotations

from typing import Any

import pytest

from appliance.reports import exporter, tasks
from appliance.reports.models import Preferences
from mailcore.config.known_shards import KnownShard, forget_known, write_known
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


def test_all_shards_are_asked_and_a_report_of_one_of_them_says_so(core: FakeCore, settings: Any) -> None:
    run = settings.EXPORTER_SOCKET.parent
    for number in (0, 1):
        shard = run / "shards" / f"{number:02}"
        shard.mkdir(parents=True)
        (shard / settings.EXPORTER_SOCKET.name).symlink_to(settings.EXPORTER_SOCKET)
    write_known(run, [KnownShard(number, run / "shards" / f"{number:02}", True) for number in (0, 1)])
    try:
        with core:
            said = exporter.cut("somebody", "Europe/Vienna")
            assert said == "this node has 2 shards, and a report is made from the events of shard 0 only"
            assert (len(core.asked("zone")), len(core.asked("cut"))) == (2, 2)
    finally:
        forget_known(run)


def test_a_cut_is_asked_for_in_the_zone_in_force(core: FakeCore, caplog: pytest.LogCaptureFixture) -> None:
    with core:
        assert exporter.cut("somebody", "Europe/Vienna") == ""
        assert (core.asked("zone"), core.asked("cut")) == ([{"zone": "Europe/Vienna"}], [{"ids": False}])
        core.answers = {"zone": Refusal("'Europe/Vienna' is no time zone"), "cut": Refusal("the disk is full")}
        assert "the disk is full" in exporter.cut("somebody", "Europe/Vienna")
    assert "the core could not export events: " in caplog.text
    assert "the disk is full" in caplog.text
