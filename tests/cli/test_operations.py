"""Every operation of the control socket has a command that asks it."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from mailcore.cli.main import main
from mailcore.control import tables
from mailcore.control.client import ControlClient
from mailcore.control.protocol.operation import Access
from mailcore.control.protocol.table import OPERATIONS, check
from mailcore.envelope import Status
from mailcore.faults import Code
from mailcore.terminal.output import JsonLines
from tests.cli.running_control import Waypost
from tests.control import running_control
from tests.control.fake_manager import progress, working
from tests.control.running_control import RunningControl
from tests.control.test_history import change, spooled
from tests.eventually import eventually
from tests.faults import other_words
from tests.lookup.recorded_lives import RecordedLives
from tests.lookup.retired_lane import mark_garbage, retired_lane
from tests.lookup.sample_messages import deferred, envelope

ID = "1K0RDGV4BE900"
COMMANDS = {
    "add_recipients": f"queue add-recipient {ID} a@example.org b@example.org",
    "ages": "queue ages --refresh",
    "bounce": f"queue bounce {ID}",
    "certificates": "status",
    "change_matching": "queue purge --all --yes",
    "check_changes": "transport check smtp process_limit=5",
    "data": f"queue data {ID}",
    "delay": f"queue delay {ID} --until +2h",
    "delete": f"queue delete {ID}",
    "destinations": "destination list",
    "disks": "status",
    "events": "events --after oldest --kind delivered --tag news",
    "explain": f"queue explain {ID}",
    "headers": f"queue headers {ID}",
    "history": f"queue history {ID}",
    "hold": f"queue hold {ID}",
    "inject_begin": "inject --from a@example.org --to b@example.org",
    "inject_data": "inject --from a@example.org --to b@example.org",
    "inject_end": "inject --from a@example.org --to b@example.org",
    "kept": "kept list",
    "kept_make": "certificate new mx.example.org --yes",
    "kept_put": "map put aliases - --in rewriting.virtual_alias_maps --yes",
    "kept_remove": "kept remove kept:map/a.0123456789abcdef",
    "kept_text": "map show kept:map/a.0123456789abcdef",
    "kept_use": "kept unuse kept:map/a.0123456789abcdef --yes",
    "list": "queue list",
    "nodes": "status",
    "list_at": "queue list --at 2h",
    "log": "log lines --client 192.0.2.1",
    "outcomes": "destination outcomes --since 2h",
    "parameters": "transport parameters",
    "ping": "ping",
    "positions": "queue positions",
    "processes": "status",
    "release": f"queue release {ID}",
    "reroute": f"queue reroute {ID} --to smtp:[192.0.2.1]",
    "resolve": "route resolve a@example.org",
    "resume": "destination resume smtp:example.org",
    "retry": f"queue retry {ID}",
    "routes": "route list",
    "search": "queue search --sender a@example.org",
    "service_times": "destination service-times --since 2h",
    "set": "destination set smtp:example.org process_limit 5",
    "settings": "settings list",
    "settings_change": "settings set relay.domains []",
    "settings_effects": "settings set relay.domains [] --dry-run",
    "settings_history": "settings history",
    "settings_return": "settings return 0123456789abcdef",
    "show": f"queue show {ID}",
    "simulate": "transport what-if smtp process_limit=5",
    "size": "queue size",
    "size_at": "queue size --at 2h",
    "state": "status",
    "suspend": "destination suspend smtp:example.org",
    "transport_set": "transport set smtp process_limit 5",
    "transports": "transport list",
    "undelete": f"queue undelete {ID}",
    "user_put": "user disable alice",
    "user_remove": "user remove alice --yes",
    "users": "user list",
    "working": f"queue active {ID}",
}
# What is answered to operations that a command asks before the one that is looked for.
BEFORE: dict[str, Any] = {
    "processes": {"processes": {}, "children": {}, "manager": True},
    "disks": {"disks": []},
    "certificates": {"certificates": []},
    "nodes": {
        "is_on": False, "node": "", "age_s": None, "is_current": False, "fault": "", "server": "", "nodes": [], "shards": [],
        "standbys": None, "giver": "",
    },
    "inject_begin": {"queue_id": ID},
    "inject_data": {},
    "settings": {
        "manages": True, "source": "", "revision": "0123456789abcdef", "settings": [], "in_force": True, "waiting": [],
    },
    "settings_change": {
        "faults": [], "changed": [{"key": "[relay] domains", "before": ["a"], "after": []}], "restarts": [],
        "revision": "0" * 16, "applied": False,
    },
}  # fmt: skip


def test_every_operation_for_clients_has_a_command() -> None:
    # Orders to nodes: the commands ask the database, also where Waypost does not run.
    assert COMMANDS.keys() | {"node_order"} == {
        name for name, each in OPERATIONS.items() if each.access is not Access.INTERNAL
    }


class Asked(BaseException):
    """The operation was asked; nothing answers."""


@pytest.mark.parametrize("operation", COMMANDS)
def test_its_command_asks_it_with_arguments_that_are_allowed(
    operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "waypost.toml"
    config.write_text('home = "home"\n')

    def parts(self: ControlClient, name: str, arguments: Any = None, **more: Any) -> Generator[Any, None, None]:
        check(name, arguments or {})
        if name == operation:
            raise Asked
        yield BEFORE[name]

    monkeypatch.setattr(ControlClient, "parts", parts)
    stdin = io.StringIO()
    stdin.buffer = io.BytesIO(b"Subject: x\n\nx\n")  # type: ignore[misc]
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(Asked):
        main([*COMMANDS[operation].split(), "--config", str(config)])


# -- what they print


async def test_ping_says_who_answers(running: RunningControl, waypost: Waypost) -> None:
    said = await waypost("ping")
    assert said.status == 0
    assert "answers; the manager is connected" in said.out
    await running.lose_the_manager()
    told = await waypost("ping", "--json")
    assert (told.status, told.json["manager"]) == (1, False)


async def test_a_route_is_listed_and_resolved(waypost: Waypost) -> None:
    lines = (await waypost("route", "list")).out.splitlines()
    assert lines[1].split() == ["*", "smtp", "(domain", "of", "the", "recipient)"]
    said = await waypost("route", "resolve", "a@[192.0.2.1]")
    assert said.status == 0
    assert "destination: smtp:[192.0.2.1]\n" in said.out
    assert "192.0.2.1)" in said.out
    told = await waypost("route", "resolve", "nobody", "--json")
    assert told.status == 1
    assert told.json["refused"]


async def test_a_route_of_a_file_is_shown_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "transport"
    file.write_text("# customers\nexample.org relay:[192.0.2.1]\n")
    maps = f'[route_maps]\nroutes = ["{file}"]\n'
    monkeypatch.setattr(running_control, "CONFIGURATION", running_control.CONFIGURATION + maps)
    async with running_control.open_control() as running:
        waypost = Waypost(running, capsys)
        listed = (await waypost("route", "list")).out
        assert "WRITTEN IN" in listed
        assert "".join(listed.split()).count(f"{file}:2") == 1, listed  # a long one is on two lines
        resolved = (await waypost("route", "resolve", "a@example.org")).out
        assert f"written in: {file}:2" in " ".join(resolved.split())
        monkeypatch.setattr(tables, "ROUTES_SHOWN_MAX", 0)
        assert "1 more route not shown" in (await waypost("route", "list")).err
        file.write_text("example.org\n")
        (problem,) = (await waypost("status", "--json")).json["problems"]
        assert problem.startswith(
            f"[route_maps] {file}:1: 'example.org' must have a route behind it; the routes read before"
        )


async def test_a_table_that_is_not_in_force_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "transport"
    file.write_text("example.org\n")
    maps = f'[route_maps]\nroutes = ["{file}"]\n'
    monkeypatch.setattr(running_control, "CONFIGURATION", running_control.CONFIGURATION + maps)
    async with running_control.open_control() as running:
        waypost = Waypost(running, capsys)
        said = await waypost("route", "list")
        assert (said.status, said.out) == (1, "")
        assert "the files of [route_maps] cannot be used" in said.err
        assert f"[route_maps] {file}:1: 'example.org' must have a route behind it" in said.err
        told = await waypost("route", "list", "--json")
        assert (told.status, told.json["default"], len(told.json["faults"])) == (1, None, 1)
        file.write_text("example.org relay:[192.0.2.1]\n")
        await eventually(lambda: running.server.routes.in_force)
        said = await waypost("route", "list")
        assert (said.status, said.err) == (0, "")
        file.write_text("example.net\n")
        await eventually(lambda: running.server.routes.faults)
        said = await waypost("route", "list")
        assert (said.status, "example.org" in said.out) == (0, True)
        (problem,) = (await waypost("status", "--json")).json["problems"]
        assert problem in said.err


async def test_fallback_next_hops_are_shown_with_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "fallback"
    file.write_text("smtp:[192.0.2.1] [192.0.2.8], backup.example\nsmtp:quiet.example none\n")
    maps = f'[route_maps]\nfallback_relay = ["{file}"]\n[transports.relay]\nfallback_relay = ["[192.0.2.9]"]\n'
    monkeypatch.setattr(running_control, "CONFIGURATION", running_control.CONFIGURATION + maps)
    async with running_control.open_control() as running:
        waypost = Waypost(running, capsys)
        listed = " ".join((await waypost("route", "list")).out.split())
        assert "FALLBACK OF NEXT HOPS WRITTEN IN relay [192.0.2.9] [transports.relay] smtp:[192.0.2.1]" in listed
        assert f"smtp:quiet.example none {file}:2" in listed
        resolved = " ".join((await waypost("route", "resolve", "a@[192.0.2.1]")).out.split())
        assert f"fallback: [192.0.2.8], backup.example written in: {file}:1 (smtp:[192.0.2.1])" in resolved
        quiet = " ".join((await waypost("route", "resolve", "a@quiet.example")).out.split())
        assert f"fallback: none written in: {file}:2" in quiet
        assert "fallback" not in (await waypost("route", "resolve", "a@[192.0.2.7]")).out
        monkeypatch.setattr(tables, "ROUTES_SHOWN_MAX", 2)
        assert "1 more fallback not shown" in (await waypost("route", "list")).err


DATA = b"Subject: =?utf-8?q?gr=C3=BC=C3=9Fe?=\r\n  folded\r\nX-Bad: \x1b[2J\r\n\r\n\x1b]0;owned\x07 line\r\n..dot\r\n"


async def test_headers_and_data_of_a_message(running: RunningControl, waypost: Waypost) -> None:
    message = spooled(running, DATA.replace(b"\r\n.", b"\r\n.."))
    said = await waypost("queue", "headers", message.queue_id)
    assert said.out.splitlines() == ["Subject: gr\u00fc\u00dfe  folded", "X-Bad: \\x1b[2J"]
    assert (await waypost("queue", "headers", message.queue_id, "--raw")).out.splitlines()[1] == "  folded"
    said = await waypost("queue", "data", message.queue_id)
    assert said.out.encode() == DATA
    told = await waypost("queue", "data", message.queue_id, "--json")
    assert b"".join(base64.b64decode(item["data"]) for item in told.items) == DATA
    assert (told.end["complete"], told.end["size_bytes"]) == (True, len(DATA))


async def test_damaged_data_is_printed_as_it_is_and_the_status_says_so(
    running: RunningControl, waypost: Waypost
) -> None:
    message = spooled(running, DATA.replace(b"\r\n.", b"\r\n.."))
    change(running, message, 9)
    said = await waypost("queue", "data", message.queue_id)
    assert said.status == 1
    assert said.out.encode() == DATA[:9] + bytes([DATA[9] ^ 1]) + DATA[10:]
    assert said.err
    told = await waypost("queue", "data", message.queue_id, "--json")
    assert (told.status, bool(told.end["damage"])) == (1, True)
    assert (await waypost("queue", "headers", message.queue_id)).status == 1
    assert (await waypost("queue", "headers", message.queue_id, "--json")).status == 1


async def test_data_goes_to_a_terminal_without_control_characters(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = spooled(running, DATA)
    monkeypatch.setattr("mailcore.cli.queue.message.CHUNK_BYTES_MAX", 7)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = (await waypost("queue", "data", message.queue_id)).out
    assert not set(out) & {"\x1b", "\x07", "\r"}
    assert "\\x1b]0;owned\\x07 line\n" in out


async def test_data_goes_on_when_the_control_process_was_replaced(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = spooled(running, b"Subject: x\r\n\r\n" + b"a line\r\n" * 100)
    monkeypatch.setattr("mailcore.cli.queue.message.CHUNK_BYTES_MAX", 100)
    item = JsonLines.item

    def lose(self: JsonLines, value: Any) -> None:
        item(self, value)
        if self.count in (2, 5):
            for client in list(running.server.clients):
                client._transport.get_extra_info("socket").shutdown(2)

    monkeypatch.setattr(JsonLines, "item", lose)
    told = await waypost("queue", "data", message.queue_id, "--json")
    assert (told.status, told.end["complete"]) == (0, True)
    assert b"".join(base64.b64decode(item["data"]) for item in told.items).count(b"a line\r\n") == 100


async def test_active_messages_are_told_from_others(running: RunningControl, waypost: Waypost) -> None:
    one, other = envelope(), envelope()
    running.manager.answers["working"] = lambda _: working(**{one.queue_id: progress(in_flight=2)})
    said = await waypost("queue", "active", one.queue_id, other.queue_id)
    assert said.status == 1
    assert [line.split() for line in said.out.splitlines()[1:]] == [
        [one.queue_id, "active", "1", "2", "incoming.0:0"], [other.queue_id, "not", "active"],
    ]  # fmt: skip
    assert (await waypost("queue", "active", one.queue_id, "--json")).json["messages"].keys() == {one.queue_id}


async def test_recipients_are_added(running: RunningControl, waypost: Waypost) -> None:
    message = envelope()
    running.write("incoming.0", message)
    running.manager.answers["add_recipients"] = lambda _: {"changed": 1, "recipients": 2, "errors": {}, "elsewhere": []}
    said = await waypost("queue", "add-recipient", message.queue_id, "b@example.org", "c@example.org", "--why", "asked")
    assert (said.status, said.out) == (0, f"2 recipients added to {message.queue_id}\n")
    (request,) = running.manager.asked("add_recipients")
    assert (request.arguments["recipients"], request.why) == (["b@example.org", "c@example.org"], "asked")
    said = await waypost("queue", "add-recipient", "1K0RDGV4BE900", "b@example.org")
    assert said.status == 1
    assert other_words(Code.NOT_FOUND) in said.err


async def test_ages_are_a_table(running: RunningControl, waypost: Waypost) -> None:
    running.write("retry.300", deferred("a@example.org", arrived_at=time.time() - 7200), deferred("b@example.net"))
    lines = (await waypost("queue", "ages")).out.splitlines()
    assert lines[0] == "2 messages (2 deferred)"
    assert lines[1].startswith("oldest: ")
    assert lines[3].split()[:2] == ["DESTINATION", "TOTAL"]
    assert lines[3].split()[2:] == ["5m", "20m", "1h", "4h", "16h", "2d", "older"]
    assert ["smtp:example.org", "1", "-", "-", "-", "1", "-", "-", "-"] in [line.split() for line in lines]
    assert {line.split()[0] for line in lines[4:]} == {"smtp:example.org", "smtp:example.net"}
    assert all(len(line) <= 80 for line in lines)
    assert (await waypost("queue", "ages", "--json")).json["total"] == 2


async def test_positions_are_a_table(running: RunningControl, waypost: Waypost) -> None:
    running.write("incoming.0", envelope())
    RecordedLives(running.settings.queue_directory).journal.close()
    await running.lose_the_manager()
    said = await waypost("queue", "positions", "--segments")
    assert said.status == 0
    assert "incoming.0" in said.out
    assert all(len(line) <= 80 for line in said.out.splitlines() if not line.startswith("restart"))
    assert {lane["lane"] for lane in (await waypost("queue", "positions", "--json")).json["lanes"]} == {"incoming.0"}


async def test_positions_tell_of_retired_segments(running: RunningControl, waypost: Waypost) -> None:
    running.write("incoming.0", envelope())
    offsets = retired_lane(running.settings.queue_directory, "incoming.7", 3, 9000)
    mark_garbage(running.settings.queue_directory, "incoming.7", offsets[0])
    RecordedLives(running.settings.queue_directory).journal.close()
    await running.lose_the_manager()
    said = await waypost("queue", "positions")
    (row,) = [line.split() for line in said.out.splitlines() if line.startswith("incoming.7") and "2001" in line]
    assert row[:2] == ["incoming.7", "1"]
    assert "RETIRED IN" in said.out


async def test_service_times_are_a_table(running: RunningControl, waypost: Waypost) -> None:
    recorded = RecordedLives(running.settings.queue_directory)
    life = recorded.arrive(["a@example.org"])
    life.start()
    life.attempt(Status.DELIVERED, 0)
    recorded.journal.close()
    said = await waypost("destination", "service-times", "--since", "5000w")
    assert said.status == 0
    assert said.out.splitlines()[3].split()[:3] == ["smtp:x", "1", "0"]
    assert (await waypost("destination", "service-times", "--json")).json["destinations"] is not None


async def test_parameters_are_listed_and_explained(waypost: Waypost) -> None:
    said = await waypost("transport", "parameters")
    assert any(line.startswith("process_limit") for line in said.out.splitlines())
    one = (await waypost("transport", "parameters", "destination_rate_delay")).out
    assert one.startswith("parameter: destination_rate_delay\n")
    assert all(len(line) <= 80 for line in one.splitlines())
    said = await waypost("transport", "parameters", "destination_rate_dealy")
    assert said.status == 2
    assert "did you mean 'destination_rate_delay'" in said.err
    told = (await waypost("transport", "parameters", "process_limit", "--json")).json
    assert {each["name"] for parameters in told["scopes"].values() for each in parameters} == {"process_limit"}


async def test_a_what_if_compares_values(running: RunningControl, waypost: Waypost) -> None:
    running.write("incoming.0", *(envelope(f"a{number}@example.org") for number in range(50)))
    size = {"messages": 50, "recipients": 50}
    running.manager.answers["size"] = lambda _: {
        **size, "lanes": {"incoming.0": size}, "destinations": {"smtp:example.org": 50},
    }  # fmt: skip
    running.manager.answers["destinations"] = lambda _: {"destinations": {}}
    running.manager.answers["state"] = lambda _: {"uptime_s": 100.0, "counters": {}}
    said = await waypost("transport", "what-if", "smtp", "destination_concurrency_limit=1")
    assert said.status == 0, said.err
    rows = [line.split() for line in said.out.splitlines()]
    assert ["IN", "FORCE", "CHANGED"] in rows
    assert ["recipients", "delivered", "50", "50"] in rows
    told = await waypost("transport", "what-if", "smtp", "destination_concurrency_limit=1", "--json")
    assert told.json["before"]["delivered"] == told.json["after"]["delivered"] == 50
    assert (await waypost("transport", "what-if", "smtp", "process_limit=0")).status == 1
    assert (await waypost("transport", "what-if", "smtp", "x=1", "--no-backlog", "--no-arrivals")).status == 2


async def test_status_shows_the_free_space(running: RunningControl, waypost: Waypost) -> None:
    await running.lose_the_manager()
    said = await waypost("status")
    assert "disk of queue, spool, log: " in said.out
    assert [disk["what"] for disk in (await waypost("status", "--json")).json["disks"]] == ["queue", "spool", "log"]
