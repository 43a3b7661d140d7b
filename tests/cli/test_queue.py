"""``waypost queue``: looking and changing, for people and for programs."""

from __future__ import annotations

import io
import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from mailcore.envelope import Aside, AsideKind, Recipient
from mailcore.faults import Code, Fault
from mailcore.manager_answers import Overtaken
from mailcore.terminal.times import in_local_time, shown
from tests.cli.running_control import Waypost
from tests.control.fake_manager import reasons
from tests.control.running_control import RunningControl
from tests.faults import OTHER_WORDS, other_words
from tests.lookup.sample_messages import NOW, deferred, envelope

HOSTILE = "a\x1b[2J\u202e@example.org"


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)


async def test_a_list_for_people(running: RunningControl, waypost: Waypost) -> None:
    first = envelope(["anna@example.org", "bert@example.org", "carl@example.org"], size_bytes=5200)
    second = deferred("anna@example.net", reply="450 4.2.0 try again later")
    running.write("incoming.0", first)
    running.write("retry.300", second)
    said = await waypost("queue", "list")
    lines = said.out.splitlines()
    assert (said.status, said.err) == (0, "")
    assert lines[0].split()[:4] == [first.queue_id, "queued", "5.2", "kB"]
    assert lines[0].endswith("sender@example.org")
    assert lines[1] == "  to anna@example.org, bert@example.org and 1 more"
    assert lines[2].startswith(f"{second.queue_id}  deferred")
    assert lines[4] == "  next attempt in 5m: 450 4.2.0 try again later"
    assert lines[5:] == ["-- 2 messages"]
    assert all(len(line) <= 80 for line in lines)


async def test_hostile_addresses_and_replies_are_escaped(running: RunningControl, waypost: Waypost) -> None:
    message = deferred(HOSTILE, reply="450 \x1b]0;owned\x07\r\nfake line", sender=HOSTILE)
    running.write("retry.300", message)
    for command in (("queue", "list"), ("queue", "list", "--json"), ("queue", "show", message.queue_id)):
        said = await waypost(*command)
        assert said.status == 0
        assert "\x1b" not in said.out
        assert "\u202e" not in said.out
        assert "\nfake line" not in said.out


async def test_a_list_for_programs_is_a_line_a_message_and_a_last_one(
    running: RunningControl, waypost: Waypost
) -> None:
    envelopes = [envelope() for _ in range(5)]
    running.write("incoming.0", *envelopes)
    first = await waypost("queue", "list", "--limit", "2", "--json")
    assert (first.status, first.err) == (0, "")
    assert [item["queue_id"] for item in first.items] == [each.queue_id for each in envelopes[:2]]
    assert (first.end["complete"], first.end["more"]) == (True, True)
    rest = await waypost("queue", "list", "--limit", "9", "--json", "--cursor", first.end["cursor"])
    assert [item["queue_id"] for item in rest.items] == [each.queue_id for each in envelopes[2:]]
    assert rest.end == {
        "complete": True, "count": 3, "more": False, "cursor": None, "error": None, "reconnected": 0,
        "manager_away": False, "note": "", "unanswered": "", "damage": [],
    }  # fmt: skip


async def test_all_pages_are_one_list(running: RunningControl, waypost: Waypost) -> None:
    running.write("incoming.0", *(envelope() for _ in range(1100)))
    running.write("retry.5", *(envelope() for _ in range(1100)))
    said = await waypost("queue", "list", "--all", "--json")
    assert len({item["queue_id"] for item in said.items}) == 2200
    assert (said.end["cursor"], said.end["note"]) == (None, "")
    assert (await waypost("queue", "list", "--limit", "150")).out.splitlines()[-1].startswith("-- 150 messages; more: ")


async def test_filters_are_passed_on(running: RunningControl, waypost: Waypost) -> None:
    running.write("retry.5", deferred("a@example.org", arrived_at=NOW - 7200), deferred("b@example.net"))
    arguments = ("--recipient", "*@example.org", "--older-than", "1h", "--lane", "retry.*", "--reason", "try AGAIN")
    said = await waypost("queue", "list", "--json", *arguments)
    assert [item["recipients"] for item in said.items] == [["a@example.org"]]


async def test_without_the_manager_a_list_says_so_on_stderr(running: RunningControl, waypost: Waypost) -> None:
    running.write("incoming.0", envelope())
    await running.manager.stop()
    said = await waypost("queue", "list")
    assert said.out.endswith("-- 1 message\n")
    told = (await waypost("queue", "list", "--json")).end
    assert told["manager_away"]
    assert told["complete"], "all that there was then"
    assert said.err == f"waypost: {in_local_time(told['note'])}\n"


async def test_one_message_is_shown(running: RunningControl, waypost: Waypost) -> None:
    message = deferred("anna@example.org", client_address="192.0.2.7", client_port=999, helo="client.example")
    running.write("retry.300", message)
    said = await waypost("queue", "show", message.queue_id.lower())
    assert said.status == 0
    assert f"queue ID:     {message.queue_id}\n" in said.out
    assert "from client:  192.0.2.7:999 (client.example)\n" in said.out
    assert "  anna@example.org  smtp:example.org\n      deferred\n      450 4.2.0 try again later\n" in said.out
    shown = (await waypost("queue", "show", message.queue_id, "--json")).json
    assert shown["message"]["lane"] == "retry.300"
    assert [each["address"] for each in shown["recipients"]] == ["anna@example.org"]


async def test_recipients_in_states_of_their_own(running: RunningControl, waypost: Waypost) -> None:
    asides = (
        None,
        Aside(AsideKind.HELD, at=NOW - 60, why="looks \x1b[31modd"),
        Aside(AsideKind.DELAYED, NOW + 3600, why="tonight"),
        Aside(AsideKind.DELETED, NOW + 7200, at=NOW - 50, why="spam"),
        Aside(AsideKind.DEFERRED, NOW + 90),
    )
    message = envelope(
        recipients=tuple(Recipient(number, f"r{number}@x.example", aside=each) for number, each in enumerate(asides)),
        aside={"held": 1, "delayed": 1, "deleted": 1, "deferred": 1},
        due_at=NOW + 90,
    )
    running.write("retry.300", message)
    said = await waypost("queue", "list")
    assert said.out.splitlines()[0].split()[:2] == [message.queue_id, "deferred"]
    assert "  1 recipient delayed, 1 recipient held, 1 recipient deleted\n" in said.out
    (item,) = (await waypost("queue", "list", "--json")).items
    assert item["states"] == {"held": 1, "delayed": 1, "deleted": 1, "deferred": 2}
    said = await waypost("queue", "show", message.queue_id)
    assert re.search(r"state: +deferred; 1 recipient delayed, 1 recipient held, 1 recipient deleted\n", said.out)
    assert said.out.endswith(
        "  r0@x.example\n      deferred\n"
        f"  r1@x.example\n      held since {shown(NOW - 60)}: looks \\x1b[31modd\n"
        f"  r2@x.example\n      delayed until {shown(NOW + 3600)}: tonight\n"
        f"  r3@x.example\n      deleted since {shown(NOW - 50)}: spam; can be undeleted until {shown(NOW + 7200)}\n"
        f"  r4@x.example\n      next attempt {shown(NOW + 90)}\n"
    )
    recipients = (await waypost("queue", "show", message.queue_id, "--json")).json["recipients"]
    assert [(each["state"], each["until"], each["since"], each["why"]) for each in recipients] == [
        ("deferred", 0, 0, ""),
        ("held", 0, NOW - 60, "looks \x1b[31modd"),
        ("delayed", NOW + 3600, 0, "tonight"),
        ("deleted", NOW + 7200, NOW - 50, "spam"),
        ("deferred", NOW + 90, 0, ""),
    ]


async def test_why_it_waits_is_told_a_line_for_each_reason(running: RunningControl, waypost: Waypost) -> None:
    message = deferred("anna@example.org", due_at=time.time() + 200)
    running.write("retry.300", message)
    running.manager.answers["explain"] = lambda _: reasons()
    said = await waypost("queue", "explain", message.queue_id.lower())
    assert said.status == 0
    assert re.fullmatch(rf"deferred\n  1 recipient for smtp:example\.org: {OTHER_WORDS}\n", said.out)
    (group,) = (await waypost("queue", "explain", message.queue_id, "--json")).json
    assert (group["state"], group["recipients"]) == ("deferred", 1)
    assert said.out.partition("\n")[2] in (await waypost("queue", "show", message.queue_id)).out


async def test_times_in_a_sentence_are_shown_as_all_others(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime.fromtimestamp(NOW + 200, UTC).isoformat(" ", "seconds")
    monkeypatch.setattr("tests.faults.OTHER_WORDS", f"due at {at}")
    message = deferred("anna@example.org", due_at=NOW + 200)
    running.write("retry.300", message)
    for command in ("explain", "show"):
        said = await waypost("queue", command, message.queue_id)
        assert f"  1 recipient for smtp:example.org: due at {shown(NOW + 200)}\n" in said.out


async def test_a_message_that_is_not_there(waypost: Waypost) -> None:
    said = await waypost("queue", "show", "1K0RDGV4BE900")
    assert (said.status, said.err) == (1, f"waypost: {other_words(Code.NOT_FOUND)}\n")


@pytest.mark.parametrize("command", ["show", "explain", "history", "delete", "hold", "retry"])
async def test_what_is_not_a_queue_id_is_wrong_use(waypost: Waypost, command: str) -> None:
    said = await waypost("queue", command, "xyz")
    assert (said.status, said.out) == (2, "")
    assert said.err == f"waypost: queue {command}: argument QUEUE_ID: 'xyz' is not a queue ID\n"
    (error,) = (await waypost("queue", command, "xyz", "--json")).errors
    assert (error["code"], error["argument"]) == ("invalid", "QUEUE_ID")


async def test_the_size(running: RunningControl, waypost: Waypost) -> None:
    size = {
        "messages": 3,
        "recipients": 5,
        "lanes": {"retry.300": {"messages": 3, "recipients": 5}},
        "destinations": {"smtp:example.org": 4, "": 1},
        "unheard": [],
        "by_shard": [],
        "unanswered": "",
    }
    running.manager.answers["size"] = lambda _: size
    assert (await waypost("queue", "size", "--json")).json == size
    lines = (await waypost("queue", "size")).out.splitlines()
    assert lines[0] == "3 messages, 5 recipients"
    assert lines[3].split() == ["retry.300", "3", "5"]
    size["unheard"] = ["incoming.1"]
    assert "newest messages in incoming.1 are not counted" in (await waypost("queue", "size")).out.splitlines()[1]


async def test_a_size_without_a_shard_is_incomplete_and_names_it(running: RunningControl, waypost: Waypost) -> None:
    """law: silent-is-unknown. Before, its receiver was said not to have reported, and the exit status was 0."""
    words = "shard 2 at b does not answer, and its mail is not counted: away"
    running.manager.answers["size"] = lambda _: {
        "messages": 3, "recipients": 5, "lanes": {}, "destinations": {}, "unheard": ["shard 2 at b"], "unanswered": words,
    }  # fmt: skip
    said = await waypost("queue", "size")
    assert (said.status, said.out) == (1, "3 messages, 5 recipients\n")
    assert f"incomplete: {OTHER_WORDS}" in said.err
    told = await waypost("queue", "size", "--json")
    assert (told.status, told.json["unanswered"]) == (1, OTHER_WORDS)


# -- changes


def accept(running: RunningControl, *changes: str) -> None:
    for change in changes:
        running.manager.answers[change] = lambda given: {
            "changed": len(given["messages"]),
            "recipients": len(given["messages"]),
            "errors": {},
            "elsewhere": [],
        }


async def test_messages_are_changed_by_queue_id(running: RunningControl, waypost: Waypost) -> None:
    message = envelope()
    running.write("incoming.0", message)
    accept(running, "delete", "hold", "bounce", "retry", "release", "undelete")
    for change, done in (("delete", "deleted"), ("hold", "held"), ("bounce", "bounced"), ("retry", "made due")):
        said = await waypost("queue", change, message.queue_id.lower(), "--why", "spam")
        assert (said.status, said.out) == (0, f"1 message {done}\n")
        assert running.manager.asked(change)[0].why == "spam"


async def test_what_could_not_be_changed_is_named_and_the_status_says_so(
    running: RunningControl, waypost: Waypost
) -> None:
    message = envelope()
    running.write("incoming.0", message)
    accept(running, "delete")
    said = await waypost("queue", "delete", message.queue_id, "1K0RDGV4BE900")
    assert said.status == 1
    assert said.out == "1 message deleted\n"
    assert said.err == f"waypost: 1K0RDGV4BE900: {other_words(Code.NOT_FOUND)}\n"
    told = (await waypost("queue", "delete", "1K0RDGV4BE900", "--json")).json
    assert (told["changed"], told["errors"]["1K0RDGV4BE900"]["code"]) == (0, Code.NOT_FOUND)


async def test_ids_may_come_from_stdin(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch
) -> None:
    envelopes = [envelope() for _ in range(1500)]
    running.write("incoming.0", *envelopes)
    accept(running, "hold")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(each.queue_id for each in envelopes) + "\n\n"))
    said = await waypost("queue", "hold", "-", "--json")
    assert said.json == {
        "changed": 1500,
        "recipients": 1500,
        "in_flight": 0,
        "too_late": 0,
        "undecided": 0,
        "errors": {},
        "dead": [],
    }
    assert [len(request.arguments["messages"]) for request in running.manager.asked("hold")] == [1000, 500]


async def test_a_line_that_is_no_queue_id_is_named_and_the_others_are_done(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = envelope(), envelope()
    running.write("incoming.0", one, other)
    accept(running, "hold")
    lines = f"{one.queue_id}\nxyz\n\n{other.queue_id.lower()}\n".encode() + b"\xff\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines), encoding="utf-8"))
    said = await waypost("queue", "hold", "-")
    assert (said.status, said.out) == (1, "2 messages held\n")
    assert said.err == ("waypost: line 2: 'xyz' is not a queue ID\nwaypost: line 5: '\\\\xff' is not a queue ID\n")


async def test_what_became_of_deliveries_in_progress_is_said(running: RunningControl, waypost: Waypost) -> None:
    message = envelope()
    running.write("incoming.0", message)
    running.manager.answers["hold"] = lambda given: {
        "changed": 1, "recipients": 4, "in_flight": {message.queue_id: [0, 1, 2]}
    }  # fmt: skip
    running.manager.answers["overtaken"] = lambda given: Overtaken(too_late=2, undecided=0)
    said = await waypost("queue", "hold", message.queue_id)
    assert (said.status, said.out.splitlines()) == (
        0,
        [
            "1 message (4 recipients) held",
            "3 recipients of them being delivered when the change was made:",
            "  2 delivered or refused before the change could apply",
            "  1 not delivered, so that the change applies",
        ],
    )


async def test_the_messages_that_were_not_changed_are_counted_by_reason(
    running: RunningControl, waypost: Waypost
) -> None:
    running.write("incoming.0", *(envelope() for _ in range(30)))
    running.manager.answers["hold"] = lambda given: {
        "changed": 0,
        "errors": {queue_id: Fault(Code.CONFLICT, "it is held") for queue_id, _, _ in given["messages"]},
    }
    said = await waypost("queue", "hold", "--all-matching", "--yes")
    assert said.status == 1
    assert said.err.splitlines()[-1].endswith("30 messages in a state that does not allow the change")


async def test_delay_and_reroute_take_a_time_and_a_route(running: RunningControl, waypost: Waypost) -> None:
    message = envelope()
    running.write("incoming.0", message)
    accept(running, "delay", "reroute")
    assert (await waypost("queue", "delay", message.queue_id, "--until", "+2h")).status == 0
    assert running.manager.asked("delay")[0].arguments["until"] == NOW + 7200
    assert (await waypost("queue", "reroute", message.queue_id, "--to", "relay:[192.0.2.1]")).status == 0
    assert running.manager.asked("reroute")[0].arguments["route"] == "relay:[192.0.2.1]"
    said = await waypost("queue", "reroute", message.queue_id, "--to", "relay:192.0.2.1")
    assert said.status == 1
    assert other_words(Code.INVALID, "route") in said.err


async def test_all_that_match_are_counted_and_not_touched_without_a_yes(
    running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.write("incoming.0", envelope(sender="spam@example.org"), envelope())
    accept(running, "delete")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    said = await waypost("queue", "purge", "--sender", "spam@*")
    assert said.status == 2
    assert "1 message matches; nothing was changed. Confirm with --yes" in said.err
    assert (await waypost("queue", "purge", "--all", "--dry-run")).out == "2 messages match\n"
    assert running.manager.asked("delete") == []


async def test_a_person_is_asked(running: RunningControl, waypost: Waypost, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    running.write("incoming.0", envelope())
    accept(running, "delete")
    monkeypatch.setattr("sys.stdin", Terminal("no\n"))
    assert (await waypost("queue", "purge", "--all")).status == 1
    assert running.manager.asked("delete") == []
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    said = await waypost("queue", "purge", "--all")
    assert (said.status, said.out) == (0, "delete 1 message? [y/N] 1 message deleted\n")


async def test_with_a_yes_all_that_match_are_changed(running: RunningControl, waypost: Waypost) -> None:
    running.write("incoming.0", *(envelope(sender="spam@example.org") for _ in range(1200)), envelope())
    accept(running, "delete", "delay")
    said = await waypost("queue", "purge", "--sender", "spam@*", "--yes", "--json", "--why", "spam")
    answer: dict[str, Any] = said.json
    assert (answer["matched"], answer["changed"], answer["errors"]) == (1200, 1200, {})
    given = ("--all-matching", "--sender", "sender@*", "--until", "+1h", "--yes")
    assert (await waypost("queue", "delay", *given)).out == "1 message delayed\n"
    assert running.manager.asked("delay")[0].arguments["until"] == NOW + 3600


async def test_nothing_matching_is_no_failure(running: RunningControl, waypost: Waypost) -> None:
    said = await waypost("queue", "purge", "--sender", "nobody@example.org")
    assert (said.status, said.out) == (0, "0 messages deleted\n")
