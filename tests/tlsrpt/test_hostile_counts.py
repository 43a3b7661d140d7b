"""What deliverers may put into the directory of counts stops no report, and is not believed; a queue that takes nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from mailcore import tls_sessions
from mailcore.tls_sessions import read_day
from mailcore.tlsrpt.sending import AT_ONCE, LOOK_S, NotNow, due_at
from mailcore.tlsrpt.sent import DONE, Sent, outcomes_in
from tests.tlsrpt.test_sending import ASKS, DAY, site, store


def dangling_link(path: Path) -> None:
    path.symlink_to("/nowhere")


def link_to_a_file(path: Path) -> None:
    store(other := path.parent.parent / "other", DAY, "linked.example")
    path.symlink_to(next(other.iterdir()))


ENTRIES: list[Callable[[Path], None]] = [Path.mkdir, os.mkfifo, dangling_link, link_to_a_file]


@pytest.mark.parametrize("make", ENTRIES)
@pytest.mark.parametrize("ago", [0, 1])
@pytest.mark.timeout(60)
async def test_what_is_no_file_is_left_out_and_logged_once(
    tmp_path: Path, make: Callable[[Path], None], ago: int
) -> None:
    async with site(tmp_path, {"asks.example": [ASKS]}) as at:
        store(at.counts, DAY, "asks.example", token="f" * 16)
        bad = at.counts / f"{DAY - timedelta(days=ago)}.{'1' * 16}.jsonl"
        make(bad)
        for _ in range(3):
            await at.sending.look()
            at.now += LOOK_S
        assert at.recipients == ["tls@reports.example"]
        (line,) = [line for line in at.log() if line["event"] == "tls_counts_left_out"]
        assert line["why"].startswith(f"{bad} is left out: ")
        assert "linked.example" not in read_day(at.counts, DAY)


async def test_an_old_directory_with_the_name_of_a_count_is_complained_of_and_stops_nothing(tmp_path: Path) -> None:
    async with site(tmp_path, {"asks.example": [ASKS]}, keep_days=4) as at:
        store(at.counts, DAY, "asks.example")
        store(at.counts, DAY - timedelta(days=9), "asks.example")
        old = at.counts / f"{DAY - timedelta(days=9)}.{'1' * 16}.jsonl"
        old.mkdir()
        await at.sending.look()
        assert at.recipients == ["tls@reports.example"]
        whys = [line["why"] for line in at.log() if line["event"] == "tls_counts_left_out"]
        assert whys == [f"{old} can't be removed: Is a directory"]
        assert not (at.counts / f"{DAY - timedelta(days=9)}.{'0' * 16}.jsonl").exists()


async def test_a_day_that_cannot_be_read_now_keeps_no_other_day_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = DAY - timedelta(days=1)
    domains = ("asks.example", "before.example")
    async with site(tmp_path, {domain: [ASKS.replace("tls@", f"{domain}@")] for domain in domains}) as at:
        store(at.counts, DAY, "asks.example")
        store(at.counts, before, "before.example")
        open_file = tls_sessions._open_file

        def full(path: str, flags: int) -> int:
            if str(before) in path:
                raise OSError(errno.EMFILE, "Too many open files")
            return open_file(path, flags)

        with monkeypatch.context() as patch:
            patch.setattr(tls_sessions, "_open_file", full)
            with pytest.raises(OSError, match="Too many open files"):
                await at.sending.look()
        assert at.recipients == ["asks.example@reports.example"]
        await at.sending.look()
        assert at.recipients == ["asks.example@reports.example", "before.example@reports.example"]


async def test_while_the_queue_takes_nothing_web_servers_are_tried_and_mail_costs_few_look_ups(tmp_path: Path) -> None:
    by_mail = [f"a{number:02}.example" for number in range(3 * AT_ONCE)]
    records = {domain: [ASKS] for domain in by_mail}
    records["z.example"] = ['"v=TLSRPTv1; rua=https://127.0.0.1:1/tls"']
    async with site(tmp_path, records, spread_s=0) as at:
        for domain in records:
            store(at.counts, DAY, domain)
        at.now = due_at(at.settings, DAY, "z.example")
        at.refusal = NotNow("the manager is away")
        await at.sending.look()
        assert [line["domain"] for line in at.log()] == ["z.example"]
        asked = len(at.names.asked)
        at.now += LOOK_S
        await at.sending.look()
        assert len(at.names.asked) - asked <= AT_ONCE
        at.refusal = None
        at.now += LOOK_S
        await at.sending.look()
        assert len(at.mail) == len(by_mail)


@pytest.mark.parametrize("name", ["sent.jsonl", "tlsrpt-sent.jsonl"])
async def test_a_list_of_what_was_sent_that_a_deliverer_makes_is_not_believed(tmp_path: Path, name: str) -> None:
    async with site(tmp_path, {"asks.example": [ASKS]}) as at:
        store(at.counts, DAY, "asks.example")
        lines = [msgspec.json.encode(Sent(str(DAY), "asks.example", address, "done")) for address in (DONE, "mailto:x")]
        (at.counts / name).write_bytes(b"\n".join(lines) + b"\n")
        (at.counts / f".{name}").symlink_to(tmp_path / "target")
        await at.sending.look()
        assert at.recipients == ["tls@reports.example"]
        at.restart()
        at.now += 40 * 86_400
        await at.sending.look()
        assert outcomes_in(tmp_path) == {}
        assert not (tmp_path / "target").exists()
