"""What doctor and metrics show of the traces."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mailcore.doctor import traces
from mailcore.doctor.finding import State
from mailcore.log.disk import Disk
from mailcore.log.positions import LanePosition, RestartPositions, write_positions
from mailcore.manager_answers import State as ManagerState
from mailcore.metrics.exposition import text_of
from mailcore.metrics.families import Answers, families
from mailcore.traces.progress import Progress, progress_directory, write_progress
from tests.answers import complete
from tests.doctor.sample_host import found, sample_host, states
from tests.traces.collector import collector


def test_a_host_without_traces(tmp_path: Path) -> None:
    assert states(traces.look(sample_host(tmp_path))) == {State.GOOD}


@pytest.mark.parametrize(("status", "state"), [(200, State.GOOD), (503, State.WARN), (404, State.WARN)])
def test_the_collector_is_asked(tmp_path: Path, status: int, state: State) -> None:
    with collector() as received:
        received.status = status
        host = sample_host(tmp_path, f'[traces]\nendpoint = "{received.url}"\n')
        findings = list(traces.look(host))
        assert found(findings, received.url).state is state
        assert received.requests == 1
        assert findings[-1].state is State.NOT_KNOWN


@pytest.mark.parametrize(("end", "state"), [(150, State.GOOD), (5 << 20, State.WARN)])
def test_the_lag_is_shown(tmp_path: Path, end: int, state: State) -> None:
    host = sample_host(tmp_path, '[traces]\nendpoint = "http://127.0.0.1:9/v1/traces"\n')
    lanes = {"incoming.0": LanePosition(0, 100), "hold": LanePosition(0, 1 << 30)}
    write_positions(Disk(), str(host.settings.queue_directory), RestartPositions(1, 0.0, lanes, 0, end))
    progress = Progress(lanes={"incoming.0": 50}, sent=7, rejected=2, lost_bytes=9)
    write_progress(Disk(), progress_directory(host.settings), progress)
    finding = list(traces.look(host))[-1]
    assert finding.state is state
    assert finding.figures == {"behind_bytes": end + 50, "sent": 7, "rejected": 2, "lost_bytes": 9}


def test_the_metrics() -> None:
    state = msgspec.convert(complete(ManagerState, {}), ManagerState)
    answers = Answers(state=state, traces=Progress(sent=7, rejected=2, lost_bytes=9), traces_lag_bytes=5)
    lines = text_of(families(answers, 0.0, 5)).splitlines()
    assert 'waypost_traces_spans_total{result="sent"} 7' in lines
    assert 'waypost_traces_spans_total{result="rejected"} 2' in lines
    assert "waypost_traces_lost_bytes_total 9" in lines
    assert "waypost_traces_lag_bytes 5" in lines
    assert "waypost_traces" not in text_of(families(Answers(state=state), 0.0, 5))
