"""The layouts of Postfix's commands: scripts read them, so the bytes are those of Postfix 3.7."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from mailcore.cli.postfix import postcat, postqueue, postsuper, qshape
from mailcore.cli.postfix.exits import Ended
from mailcore.cli.postfix.main import main as multi_call
from mailcore.cli.postfix.options import read_options
from mailcore.cli.postfix.waiting import Maildrop
from mailcore.control.client import ControlClient
from mailcore.control.protocol.changes import ChangeResult
from mailcore.control.protocol.messages import Item, ListPage, ShownRecipient, ShowPart
from mailcore.faults import Code, Fault

NOW = 1_795_447_123.0


def item(queue_id: str, lane: str = "retry.300", **more: Any) -> Item:
    known: dict[str, Any] = {
        "queue_id": queue_id, "lane": lane, "offset": 7, "generation": 1, "state": "deferred", "states": {},
        "active": False, "sender": "a@example.org", "recipients": ["b@example.net"], "recipient_count": 1,
        "size_bytes": 1500, "arrived_at": NOW, "due_at": 0.0, "attempts": 1, "reason": "timed out", "destinations": [],
    }  # fmt: skip
    return Item(**{**known, **more})


class Control:
    """A queue that answers as the control process does, and notes what it is asked to change."""

    def __init__(
        self, items: Sequence[Item], damage: Sequence[str] = (), errors: dict[str, Code] | None = None
    ) -> None:
        self.items = items
        self.damage = list(damage)
        self.errors = errors or {}
        self.asked: list[tuple[str, list[str]]] = []

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *ended: object) -> None: ...

    def ask_parts(self, operation: str, result: type, arguments: dict[str, Any]) -> Iterator[Any]:
        if operation == "list":
            yield ListPage(
                items=list(self.items), cursor=None, examined=1, damage=self.damage, manager_away=False, note=""
            )
            return
        (found,) = [each for each in self.items if each.queue_id == arguments["queue_id"]]
        yield ShowPart(message=found)
        yield ShowPart(
            recipients=[
                ShownRecipient(
                    number=n,
                    address=a,
                    destination="",
                    reply=f"reply {n // 2}",
                    done=n == 3,
                    state="deferred",
                    until=0.0,
                    why="",
                    since=0.0,
                )
                for n, a in enumerate(["b@e.net", "c@e.net", "d@e.net", "done@e.net"])
            ]
        )

    def ask(self, operation: str, result: type, arguments: dict[str, Any], why: str = "") -> Any:
        names = [each[0] for each in arguments.get("messages", [])] or arguments.get("queue_ids", [])
        self.asked.append((operation, names))
        errors = {name: Fault(self.errors[name], "not so") for name in names if name in self.errors}
        return ChangeResult(
            changed=len(names) - len(errors), recipients=0, in_flight=0, too_late=0, undecided=0, errors=errors, dead=[]
        )


def client_of(control: Control) -> Any:
    return lambda config: cast(ControlClient, control)


def empty(config: str) -> Maildrop:
    return Maildrop(Path("/nonexistent"))


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "localtime", time.gmtime)


def listed(capsys: pytest.CaptureFixture[str], control: Control, option: str = "-p") -> str:
    assert postqueue.postqueue([option], client_of(control), empty) == 0
    return capsys.readouterr().out


def test_the_queue_is_printed_as_postqueue_does(capsys: pytest.CaptureFixture[str]) -> None:
    several = item("1K0RDGV4BE900", active=True, recipient_count=4, sender="", size_bytes=2000)
    held = item("1K0RDGV4BE901", "hold", state="held", reason="spam?")
    assert listed(capsys, Control([several, held])) == (
        "-Queue ID-  --Size-- ----Arrival Time---- -Sender/Recipient-------\n"
        "1K0RDGV4BE900*    2000 Mon Nov 23 15:18:43  MAILER-DAEMON\n"
        f"{'(reply 0)':>78}\n"
        "                                         b@e.net\n"
        "                                         c@e.net\n"
        f"{'(reply 1)':>78}\n"
        "                                         d@e.net\n"
        "\n"
        "1K0RDGV4BE901!    1500 Mon Nov 23 15:18:43  a@example.org\n"
        f"{'(spam?)':>78}\n"
        "                                         b@example.net\n"
        "\n"
        "-- 3 Kbytes in 2 Requests.\n"
    )
    assert listed(capsys, Control([held])).endswith("\n-- 1 Kbytes in 1 Request.\n")
    assert listed(capsys, Control([])) == "Mail queue is empty\n"


def test_a_queue_that_could_not_be_read_is_not_an_empty_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert postqueue.postqueue(["-p"], client_of(Control([], damage=["incoming.0 at 7"])), empty) == 69
    out, err = capsys.readouterr()
    assert "empty" not in out
    assert "incoming.0 at 7" in err


def test_text_of_others_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in listed(capsys, Control([item("1K0RDGV4BE900", reason="\x1b[2J", sender="\x1b@e.org")]))


def test_json_has_the_keys_of_postfix(capsys: pytest.CaptureFixture[str]) -> None:
    control = Control([
        item("1K0RDGV4BE900", "incoming.0", state="queued", attempts=0, reason=""),
        item("1K0RDGV4BE901", "deleted", state="deleted"),
    ])  # fmt: skip
    assert [json.loads(line) for line in listed(capsys, control, "-j").splitlines()] == [
        {
            "queue_name": "incoming", "queue_id": "1K0RDGV4BE900", "arrival_time": int(NOW), "message_size": 1500,
            "forced_expire": False, "sender": "a@example.org", "recipients": [{"address": "b@example.net"}],
        }
    ]  # fmt: skip


MIXED = [
    item("1K0RDGV4BE900", "incoming.0", state="queued", attempts=0),
    item("1K0RDGV4BE901", active=True),
    item("1K0RDGV4BE902"),
    item("1K0RDGV4BE903", "hold", state="held"),
    item("1K0RDGV4BE904", "deleted", state="deleted"),
]


@pytest.mark.parametrize(
    ("argv", "asked", "last"),
    [
        (["-d", "ALL"], [("delete", "0123")], "Deleted: 4 messages"),
        (["-d", "ALL", "deferred"], [("delete", "2")], "Deleted: 1 message"),
        (["-d", "ALL", "hold", "incoming"], [("delete", "03")], "Deleted: 2 messages"),
        (["-h", "ALL"], [("hold", "012")], "Placed on hold: 3 messages"),
        (["-H", "ALL"], [("release", "3")], "Released from hold: 1 message"),
        (["-r", "ALL"], [("retry", "012"), ("release", "3")], "Requeued: 4 messages"),
        (["-d", "1K0RDGV4BE900", "-d", "1k0rdgv4be901"], [("delete", "01")], "Deleted: 2 messages"),
        (["-d", "-"], [("delete", "02")], "Deleted: 2 messages"),
        (["-d", "1K0RDGV4BE903", "deferred"], [], "Deleted: 0 messages"),
        (["-d", "*"], [], "Deleted: 0 messages"),
        (["-p", "-s"], [], ""),
    ],
)
def test_postsuper_changes_what_it_says_and_nothing_else(
    argv: list[str], asked: list[tuple[str, str]], last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    control = Control(MIXED)
    stdin = ["1K0RDGV4BE900\n", "\n", "1K0RDGV4BE902 more\n"]
    assert postsuper.postsuper(argv, client_of(control), empty, stdin) == 0
    assert [(name, "".join(each[-1] for each in ids)) for name, ids in control.asked if ids] == asked
    err = capsys.readouterr().err
    assert err.splitlines()[-1:] == ([f"postsuper: {last}"] if last else [])
    assert len([line for line in err.splitlines() if line.startswith("postsuper: 1K0R")]) == sum(
        len(ids) for _, ids in asked
    )


def test_postsuper_counts_only_what_was_changed_and_says_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    control = Control(MIXED, errors={"1K0RDGV4BE900": Code.NOT_FOUND, "1K0RDGV4BE902": Code.CONFLICT})
    assert postsuper.postsuper(["-d", "ALL"], client_of(control), empty, []) == 0
    assert "Deleted: 2 messages" in capsys.readouterr().err
    control.errors = {"1K0RDGV4BE900": Code.OUTCOME_UNKNOWN}
    assert postsuper.postsuper(["-d", "ALL"], client_of(control), empty, []) == 1
    assert "Deleted: 3 messages" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["-x"], ["-d"], ["-d", "ALL", "everything"]])
def test_postsuper_refuses_what_it_does_not_know_before_it_changes_anything(argv: list[str]) -> None:
    control = Control(MIXED)
    with pytest.raises(Ended) as ended:
        postsuper.postsuper(argv, client_of(control), empty, [])
    assert (ended.value.status, control.asked) == (1, [])


def test_qshape_prints_the_table_of_the_field(capsys: pytest.CaptureFixture[str]) -> None:
    now = time.time()
    control = Control([
        item("1K0RDGV4BE900", arrived_at=now - 60),
        item("1K0RDGV4BE901", arrived_at=now - 7 * 60, recipients=["x@EXAMPLE.net"]),
        item("1K0RDGV4BE902", arrived_at=now - 1e6, recipients=["x@a-rather-long-name.of-a-domain.example.org"], sender=""),
    ])  # fmt: skip
    assert qshape.qshape(["deferred"], client_of(control), empty) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "                                         T  5 10 20 40 80 160 320 640 1280 1280+"
    assert lines[1] == "                                  TOTAL  3  1  1  0  0  0   0   0   0    0     1"
    assert lines[2] == "                            example.net  2  1  1  0  0  0   0   0   0    0     0"
    name = "+" + "a-rather-long-name.of-a-domain.example.org"[-38:]
    assert lines[3] == name + "  1  0  0  0  0  0   0   0   0    0     1"
    assert qshape.qshape(["-s", "-b", "5", "-t", "1", "deferred"], client_of(control), empty) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["T", "1", "2", "4", "8", "8+"]
    assert [line.split()[0] for line in lines[1:]] == ["TOTAL", "example.org", "MAILER-DAEMON"]
    assert qshape.qshape([], client_of(control), empty) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["TOTAL", *["0"] * 11]


def test_a_name_that_is_not_a_queue_id_is_refused_in_plain_words() -> None:
    control = Control([])
    with pytest.raises(Ended, match=r"invalid queue ID: 'x y'$"):
        postqueue.postqueue(["-i", "x y"], client_of(control), empty)
    with pytest.raises(Ended, match=r"^'x/y' is not a queue ID$"):
        postcat.postcat(["-q", "x/y"], client_of(control))
    assert control.asked == []


@pytest.mark.parametrize(
    "words", [("mailq", "-c"), ("mailq", "-v", "-C"), ("sendmail", "-bp", "-c"), ("postqueue", "-p", "-c")]
)
def test_the_configuration_file_that_is_given_is_the_one_that_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    other = tmp_path / "other.toml"
    other.write_text('home = "elsewhere"\n')
    monkeypatch.setenv("WAYPOST_CONFIG", "/nowhere/waypost.toml")
    assert multi_call([*words, str(other)]) == 69  # no control process there; 78 says that there is no such file
    assert "/nowhere" not in capsys.readouterr().err


def test_the_option_c_of_sendmail_takes_no_recipient() -> None:
    """Sendmail's own -c has no value, and Postfix ignores it: an address behind it is still a recipient."""
    given = read_options(["-c", "a@example.org"])
    assert (given.config, given.recipients) == ("", ["a@example.org"])
    given = read_options(["-c", "/etc/other.toml", "a@example.org"])
    assert (given.config, given.recipients) == ("/etc/other.toml", ["a@example.org"])
