"""The metrics: what a monitoring system and its alarms rely on."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.metrics.names import NAMES as PORTAL_NAMES
from mailcore.config.load import load
from mailcore.control.protocol.state import Child, Disk, Disks, Processes
from mailcore.manager_answers import ShardSize, Size, State
from mailcore.metrics.asking import certificates_of
from mailcore.metrics.exposition import Family, text_of
from mailcore.metrics.families import OTHER, Answers, families
from mailcore.metrics.server import Page
from tests.answers import complete, destinations, sample
from tests.doctor.sample_host import certificate

DOCS = Path(__file__).parents[2] / "docs"
NAMES = {family.name for family in families(Answers(), 0.0, 5)}
PORTAL = {f"{name}_total" if kind == "counter" else name for name, kind in PORTAL_NAMES.items()}


def test_every_name_and_help_follows_the_rules() -> None:
    for family in families(Answers(), 0.0, 5):
        family.check()
        assert family.help.endswith("."), family.name
        assert not re.search(r"_(ms|kb|mb|minutes|percent|count|sum|bucket)\b", family.name), family.name
    assert len(NAMES) == len(families(Answers(), 0.0, 5))


def test_what_is_not_known_is_left_out_and_is_not_zero() -> None:
    text = text_of(families(Answers(), 0.0, 5))
    assert text == (
        "# HELP waypost_up 1 if the manager answers the control process, else 0: mail is accepted but not delivered.\n"
        "# TYPE waypost_up gauge\n"
        "waypost_up 0\n"
    )


def test_what_lacks_a_shard_is_left_out() -> None:
    """law: silent-is-unknown. A counter without a shard would rise by all that this one has counted when it is back."""
    size = Size(messages=1, recipients=1, lanes={}, destinations={})
    size.by_shard = [ShardSize(number=0, messages=1, recipients=1)]
    state = sample(State, {"shards": [{"number": 0, "answers": True}, {"number": 1, "answers": False}]})
    state.totals = {"accepted": 7}
    found = destinations(suspended={"smtp": None}, unanswered="shard 1 does not answer")

    def names(**answers: Any) -> set[str]:
        return {each.name for each in families(Answers(**answers), 0.0, 5) if each.samples}

    assert {"waypost_accepted_messages_total", "waypost_active_messages"} <= names(state=state)
    assert not {"waypost_queue_messages", "waypost_suspended_scopes"} & names(
        state=state, size=size, destinations=found
    ), "shard 1 has answered one question, and not the others"
    state.unanswered = "shard 1 does not answer"
    assert names(state=state, size=size, destinations=found, export_lag_bytes=3) == {"waypost_up"}


def test_destinations_are_bounded_and_their_sum_is_the_whole() -> None:
    destinations = {f"smtp:d{number:02}.example": number for number in range(1, 50)} | {"": 7}
    size = Size(messages=1, recipients=1, lanes={}, destinations=destinations)
    (family,) = [each for each in families(Answers(size=size), 0.0, 5) if each.name == "waypost_destination_recipients"]
    assert len(family.samples) == 6
    assert family.samples[0] == ({"destination": "smtp:d49.example"}, 49.0)
    assert family.samples[-1][0] == {"destination": OTHER}
    assert sum(value for _, value in family.samples) == sum(destinations.values())


def test_text_of_others_cannot_make_a_line_of_its_own() -> None:
    family = Family("waypost_x", 'a\\b\n"')
    family.add(1.5, destination='a"b\\c\nwaypost_up 0')
    assert text_of([family]).splitlines() == [
        '# HELP waypost_x a\\\\b\\n"',
        "# TYPE waypost_x gauge",
        'waypost_x{destination="a\\"b\\\\c\\nwaypost_up 0"} 1.5',
    ]


@pytest.mark.parametrize(
    "family", [Family("waypost_x", "h", "counter"), Family("waypost_x_total", "h"), Family("x", "h")]
)
def test_a_name_against_the_rules_is_refused(family: Family) -> None:
    with pytest.raises(ValueError, match="x"):
        family.check()


def test_processes_and_disks() -> None:
    processes = Processes(
        processes={"manager": 7}, manager=True,
        children={"manager": Child(pid=7, started_at=5.0, restarts=2), "control": Child(pid=None, started_at=0.0, restarts=0)},
    )  # fmt: skip
    disk = Disk(what="queue", path="/q", total_bytes=10, free_bytes=4, reserve_bytes=3, device=1)
    lines = text_of(families(Answers(processes=processes, disks=Disks(disks=[disk])), 0.0, 5)).splitlines()
    assert 'waypost_process_restarts_total{process="manager"} 2' in lines
    assert 'waypost_process_up{process="control"} 0' in lines
    assert 'waypost_disk_free_bytes{directory="queue"} 4' in lines
    assert not any(line.startswith("waypost_disk_free_inodes") for line in lines)


def test_each_certificate_of_the_receivers_has_its_expiry(tmp_path: Path) -> None:
    """Certificates of the listeners and by name are shown, too; of two files with the same name, the path is shown."""
    first, second, third = (
        certificate(made_in(tmp_path / name), "mx.example.org", days) for name, days in (("a", 5), ("b", 50), ("c", 9))
    )
    other = third.rename(third.with_name("other.pem"))
    config = tmp_path / "waypost.toml"
    config.write_text(
        f'home = "home"\n[receiver]\ntls_certificate = "{first}"\ntls_key = "{first}"\n'
        + "".join(
            f'[[certificate]]\nnames = ["{name}.example.org"]\ncertificate = "{file}"\nkey = "{file}"\n'
            for name, file in (("b", second), ("c", other))
        )
    )
    found = certificates_of(load(config))
    assert {name: round((until - time.time()) / 86_400) for name, until in found.items()} == {
        str(first): 5, str(second): 50, "other.pem": 9,
    }  # fmt: skip


def test_outcomes_by_transport_and_the_lag_of_the_export() -> None:
    state = msgspec.convert(complete(State, {"outcomes": {"smtp": {"delivered": 7, "deferred": 2}}}), State)
    text = text_of(families(Answers(state=state, export_lag_bytes=5, export_lag_bytes_max=9), 0.0, 5))
    assert 'waypost_transport_recipients_total{transport="smtp",outcome="delivered"} 7' in text.splitlines()
    assert 'waypost_transport_recipients_total{transport="smtp",outcome="deferred"} 2' in text.splitlines()
    assert "waypost_export_lag_bytes 5" in text.splitlines()
    assert "waypost_export_lag_limit_bytes 9" in text.splitlines()


def test_cut_through_is_counted_if_a_transport_has_it() -> None:
    counters = {
        "passed_on": 9, "cut_through_uncertain": 1, "cut_through_refused": 13, "cut_through_route": 3, "cut_through_room": 2,
        "cut_through_turn": 1, "cut_through_slow": 7, "cut_through_failed": 5, "cut_through_late": 4,
    }  # fmt: skip
    found = families(Answers(state=msgspec.convert(complete(State, {"counters": counters}), State)), 0.0, 5)
    lines = [line for line in text_of(found).splitlines() if line.startswith("waypost_cut_through")]
    assert lines == [
        'waypost_cut_through_messages_total{outcome="passed_on"} 9',
        'waypost_cut_through_messages_total{outcome="stored"} 18',
        'waypost_cut_through_messages_total{outcome="uncertain"} 1',
        'waypost_cut_through_stored_total{reason="route"} 3',
        'waypost_cut_through_stored_total{reason="room"} 2',
        'waypost_cut_through_stored_total{reason="turn"} 1',
        'waypost_cut_through_stored_total{reason="slow"} 7',
        'waypost_cut_through_stored_total{reason="late"} 4',
        'waypost_cut_through_stored_total{reason="refused"} 1',
    ]
    without = families(Answers(state=msgspec.convert(complete(State, {"counters": {}}), State)), 0.0, 5)
    assert "waypost_cut_through" not in text_of(without)


def made_in(directory: Path) -> Path:
    directory.mkdir()
    return directory


def named_in(text: str) -> set[str]:
    """The families that are named; a part of a histogram names its family."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\bwaypost_[a-z0-9_]+", text)}


def test_the_board_and_the_alerts_name_metrics_that_exist() -> None:
    board = json.loads((DOCS / "grafana.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 10
    assert named_in(" ".join(expressions)) <= NAMES | PORTAL
    alerts = (DOCS / "alerts.yml").read_text()
    assert named_in(alerts)
    assert named_in(alerts) <= NAMES | PORTAL


def test_the_page_of_the_documents_explains_each() -> None:
    page = (DOCS / "metrics.md").read_text()
    for family in families(Answers(), 0.0, 5):
        assert f"| `{family.name}` | {family.kind} | {family.help} |" in page, family.name


class Once:
    def __init__(self) -> None:
        self.asked = 0

    def text(self, *, is_open: bool = False) -> str:
        self.asked += 1
        return "waypost_up 1\n# EOF\n" if is_open else "waypost_up 1\n"


async def get(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_the_page_is_one_answer_for_many_scrapes() -> None:
    asking = Once()
    page = Page(asking)  # type: ignore[arg-type]
    server = await asyncio.start_server(page.client, "127.0.0.1", 0, limit=8192)
    port = server.sockets[0].getsockname()[1]
    answers = await asyncio.gather(*(get(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(10)))
    assert all(
        answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"\r\n\r\nwaypost_up 1\n") for answer in answers
    )
    assert asking.asked == 1
    accept = b"GET /metrics HTTP/1.1\r\nAccept: text/html, application/openmetrics-text; version=1.0.0\r\n\r\n"
    answer = await get(port, accept)
    assert b"\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n" in answer
    assert answer.endswith(b"\n# EOF\n")
    assert (await get(port, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")
    assert (await get(port, b"POST /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405")
    assert await get(port, b"x" * 20_000) == b""
    server.close()
    await server.wait_closed()
