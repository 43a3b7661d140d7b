"""Mail that waits in the maildrop is neither silently left out nor silently left alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mailcore.cli.postfix import postqueue, postsuper, qshape
from mailcore.cli.postfix.exits import Ended
from mailcore.cli.postfix.waiting import Maildrop
from mailcore.log.disk import Disk
from mailcore.pickup.dropped import DIRECTORY, Draft, Submission
from tests.cli.postfix.test_queue_commands import Control, client_of, item


@pytest.fixture
def maildrop(tmp_path: Path) -> Maildrop:
    """A maildrop with two messages, the older one to two recipients; and a file that is none."""
    (tmp_path / DIRECTORY).mkdir()
    for age_s, recipients in ((0, ("b@example.net",)), (700, ("c@example.net", "d@example.org"))):
        draft = Draft(Disk(), str(tmp_path / DIRECTORY))
        draft.begin(Submission(sender="a@e.com", recipients=recipients, submitted_at=time.time() - age_s))
        draft.write(b"x")
        draft.submit()
    (tmp_path / DIRECTORY / "damaged.0").write_text("")
    return Maildrop(tmp_path)


def shut(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the mode of the directory is for all but its owner."""

    def refused(path: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", refused)


def test_qshape_counts_the_maildrop(maildrop: Maildrop, capsys: pytest.CaptureFixture[str]) -> None:
    control = Control([item("1K0RDGV4BE900")])
    assert qshape.qshape(["-b", "3", "maildrop"], client_of(control), lambda _: maildrop) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    total, net, org = lines[1:]
    assert total == ["TOTAL", "3", "1", "0", "2"]
    assert (net, org) == (["example.net", "2", "1", "0", "1"], ["example.org", "1", "0", "0", "1"])
    assert qshape.qshape(["maildrop", "deferred"], client_of(control), lambda _: maildrop) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["TOTAL", "4"]
    assert qshape.qshape(["deferred"], client_of(control), lambda _: maildrop) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["TOTAL", "1"]


def test_qshape_names_a_file_that_it_cannot_read(maildrop: Maildrop, capsys: pytest.CaptureFixture[str]) -> None:
    names = maildrop.names()
    assert names
    (maildrop.directory / names[0]).write_bytes(b"x")
    with pytest.raises(Ended, match=f"the table lacks a part: .*{names[0]}: shorter than its head"):
        qshape.qshape(["maildrop"], client_of(Control([])), lambda _: maildrop)
    assert "TOTAL" in capsys.readouterr().out


def test_mailq_mentions_the_maildrop(maildrop: Maildrop, capsys: pytest.CaptureFixture[str]) -> None:
    assert postqueue.postqueue(["-p"], client_of(Control([])), lambda _: maildrop) == 0
    assert capsys.readouterr().out == "-- 2 messages in the maildrop, not in the queue yet.\n"
    assert postqueue.postqueue(["-p"], client_of(Control([item("1K0RDGV4BE900")])), lambda _: maildrop) == 0
    out, err = capsys.readouterr()
    assert out.endswith("-- 1 Kbytes in 1 Request.\n")
    assert err == "postqueue: note: 2 messages in the maildrop, not in the queue yet\n"


@pytest.mark.parametrize("option", ["-d", "-h", "-H", "-r"])
def test_postsuper_changes_nothing_in_the_maildrop_and_says_so(maildrop: Maildrop, option: str) -> None:
    control = Control([item("1K0RDGV4BE900")])
    before = maildrop.names()
    with pytest.raises(Ended, match=r"2 messages in the maildrop.*nothing was changed") as ended:
        postsuper.postsuper([option, "ALL", "maildrop", "deferred"], client_of(control), lambda _: maildrop, [])
    assert (ended.value.status, control.asked, maildrop.names()) == (1, [], before)
    assert postsuper.postsuper([option, "ALL"], client_of(control), lambda _: maildrop, []) == 0


def test_an_empty_maildrop_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control = Control([item("1K0RDGV4BE900")])
    assert postsuper.postsuper(["-d", "ALL", "maildrop"], client_of(control), lambda _: Maildrop(tmp_path), []) == 0
    assert "Deleted: 0 messages" in capsys.readouterr().err


def test_a_user_who_may_not_list_it_is_told(
    maildrop: Maildrop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shut(monkeypatch)
    control = client_of(Control([]))
    with pytest.raises(Ended, match="only root and the user of Waypost may list the maildrop"):
        qshape.qshape(["maildrop"], control, lambda _: maildrop)
    with pytest.raises(Ended, match="only root and the user of Waypost may list the maildrop; nothing was changed"):
        postsuper.postsuper(["-d", "ALL", "maildrop"], control, lambda _: maildrop, [])
    assert postqueue.postqueue(["-p"], control, lambda _: maildrop) == 0
    assert capsys.readouterr().out == "Mail queue is empty\n"
