"""Every command of ``waypost``, typed at a node while another one is down: what it prints, and its exit status.

The table has each command of the parser: a new one needs its line. Where mail of all nodes is concerned, the silent node is
named. A command that hangs is ended by the patience of all tests: no time is compared with a clock.

Proves law: silent-is-unknown (docs/laws.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from mailcore.cli.commands import COMMANDS
from mailcore.cli.tree import command_tree
from mailcore.config.kept_files import reference_of
from tests.end_to_end.appliance import COMMAND, free_port
from tests.end_to_end.test_report_day import zone_of_noon
from tests.eventually import PATIENCE_S, eventually
from tests.made_certificates import Authority
from tests.nodes.joined import JoinedNode, joined
from tests.peers.test_one_place import WAITING, ids_of, listed, sees
from tests.replication.cluster import Cluster
from tests.shares.counting_sink import CountingSink

LEAVES = [" ".join(each.words[1:]) for each in command_tree(COMMANDS).walk() if not each.children]
SIZES = {"a": 3, "b": 4, "c": 5}  # messages
HERE, ALL = SIZES["a"], sum(SIZES.values())
SILENT = "shard 3 at c does not answer"
OF_C = "node c does not answer: "
ANY = -1
REPORT_S = 3 * PATIENCE_S  # Spark takes a minute where nothing else runs, and four beside a load of twelve
ZONE = zone_of_noon()
EXPORTED: dict[str, dict[str, object]] = {
    "export": {"enabled": True, "interval_s": 0.3}, "reports": {"zone": ZONE, "spark_master": "local[2]"},
}  # fmt: skip
ALIASES = b"kim@example.org  kim@old.example\n"
IN_POSTFIX = "4A1B2C3D4E"  # the queue id there
IMPORT = "import-postfix {files}/postfix/etc --queue-directory {files}/postfix/queue"


class Line(NamedTuple):
    """What is typed, the exit status (ANY: it depends on the machine), and what is printed, on stdout or stderr.

    ``{c}``: a message of the silent node; ``{a}``: one of this node; ``{to}``: the destination of all mail; ``{files}``: the
    directory of what the test has made.
    """

    typed: str
    status: int = 0
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


# A message of the silent node: refused, with the node's name.
def of_one(*commands: str) -> dict[str, tuple[Line, ...]]:
    return {each.partition(" {")[0]: (Line(each, 1, (OF_C,), ("no such message",)),) for each in commands}


# All that match, also at the silent node: nothing is done at any.
def of_all(command: str, more: str = "") -> tuple[Line, ...]:
    name = command.partition(" ")[0]
    return (
        Line(f"queue {name} {{c}}{more} --yes" if name == "bounce" else f"queue {name} {{c}}{more}", 1, (OF_C,)),
        Line(
            f"queue {command} --all-matching --sender *@sender.example{more} --yes",
            1,
            ("shard 3 at c: ", "nothing was changed in any shard"),
        ),
        Line(f"queue {command} --all-matching --sender *@sender.example{more} --dry-run", 1, ("shard 3 at c: ", OF_C)),
    )


LINES: dict[str, tuple[Line, ...]] = {
    # Of the mail of all nodes.
    "status": (
        Line("status", 0, (f"at c; unknown: {OF_C}", SILENT, "7 messages, 7 recipients", "c is silent"), ("at c; 0",)),
        Line("status --json", 0, (SILENT,)),
    ),
    "queue list": (
        Line("queue list", 1, (f"{SILENT}, and its mail is not in this list", "-- 7 messages")),
        Line("queue list --json", 1, ('"complete": false', f'"unanswered": "{SILENT}')),
        Line("queue list --sender c@*", 1, (SILENT, "-- 0 messages")),
        Line("queue list --at 1s", 1, (f"incomplete: {SILENT}",)),
    ),
    "queue size": (
        Line("queue size", 1, (f"incomplete: {SILENT}, and its mail is not counted", "7 messages"), ("its receiver",)),
        Line("queue size --json", 1, (f'"unanswered": "{SILENT}',)),
        Line("queue size --at 1s", 1, (f"incomplete: {SILENT}",)),
    ),
    "queue ages": (
        Line("queue ages", 1, (f"incomplete: {SILENT}, and its mail is not counted", "7 messages")),
        Line("queue ages --json", 1, (f'"unanswered": "{SILENT}',)),
    ),
    "queue positions": (
        Line("queue positions", 1, (f"incomplete: {SILENT}, and its lanes are not shown",)),
        Line("queue positions --json", 1, (f'"unanswered": "{SILENT}',)),
    ),
    "queue search": (
        Line("queue search --sender c@sender.example", 1, (f"{SILENT}, and its mail is not searched",)),
        Line("queue search --sender c@sender.example --json", 1, ('"complete": false', SILENT)),
        Line("queue search --sender a@sender.example", 1, (SILENT, "-- 3 messages")),
    ),
    **of_one("queue show {c}", "queue explain {c}", "queue history {c}", "queue headers {c}", "queue data {c}"),
    **of_one("queue active {c}", "queue add-recipient {c} x@example.org", "queue reroute {c} --to smtp:[192.0.2.1]"),
    **{f"queue {name}": of_all(name) for name in ("delete", "hold", "release", "retry", "bounce")},
    "queue delay": of_all("delay", " --until +2h"),
    "queue undelete": of_one("queue undelete {c}")["queue undelete"],
    "queue purge": (
        Line("queue purge --sender c@* --yes", 1, ("shard 3 at c: ", "nothing was changed in any shard")),
        Line("--here queue hold {a}", 0, ("1 message held",)),
        Line("queue release {a} {c}", 1, ("1 message released", "shard 3 at c: ")),
    ),
    "destination list": (
        Line("destination list", 1, (f"incomplete: {SILENT}, and its mail is not counted", "{to}")),
        Line("destination list --json", 1, ('"complete": false', f'"unanswered": "{SILENT}')),
    ),
    "destination outcomes": (
        Line("destination outcomes", 1, (f"incomplete: {SILENT}",)),
        Line("destination outcomes --json", 1, (f'"unanswered": "{SILENT}',)),
    ),
    "destination service-times": (
        Line("destination service-times --since 2h", 1, (f"incomplete: {SILENT}",)),
        Line("destination service-times --since 2h --json", 1, (f'"unanswered": "{SILENT}',)),
    ),
    "destination resume": (Line("destination resume {to}", 1, ("is resumed", "shard 3 at c: ")),),
    "events": (
        Line("events -n 3", 0, ("accepted",)),
        Line("events", 1, ("accepted", f"incomplete: {SILENT}, and its events come later")),
        Line("events --json", 1, ('"complete": false', f'"unanswered": "{SILENT}')),
        Line("events --after now", 1, (f"{SILENT}, and what is now is not known there",)),
    ),
    # Values of all nodes: the silent one takes them over when it is back.
    "destination suspend": (Line("destination suspend {to}", 0, ("is suspended",)),),
    "destination set": (Line("destination set {to} destination_concurrency_limit 3", 0, ("= 3",)),),
    "destination unset": (Line("destination unset {to} destination_concurrency_limit", 0, ("= default",)),),
    "transport set": (Line("transport set smtp process_limit 50", 0, ("process_limit = 50",)),),
    "settings list": (Line("settings list", 0, ("nodes.node",)),),
    "settings set": (Line("settings set relay.domains ['a.example'] --yes", 0, ("domains",)),),
    "settings unset": (Line("settings unset relay.domains --yes", 0, ("domains",)),),
    "settings remove": (Line("settings remove deliverer.connection_idle_s --yes", 0, ("restarts: nothing",)),),
    "settings history": (Line("settings history", 0, ("[relay] domains: empty -> a.example",)),),
    "settings return": (Line("settings return 0000000000000000 --yes", 1, ("0000000000000000",)),),
    "user add": (Line("user add kim --password-stdin --sender any", 0, ("kim",)),),
    "user list": (Line("user list", 0, ("kim",)),),
    "user password": (Line("user password kim --password-stdin", 0, ("kim",)),),
    "user set": (Line("user set kim --sender any", 0, ("kim",)),),
    "user disable": (Line("user disable kim", 0, ("kim",)),),
    "user enable": (Line("user enable kim", 0, ("kim",)),),
    "user remove": (Line("user remove kim --yes", 0, ("kim",)),),
    # The nodes.
    "node list": (Line("node list", 0, ("\nc ",)),),
    "node state": (Line("node state", 0, ("open, silent", "0 s ago|1 s ago|2 s ago|3 s ago")),),
    "node settings": (Line("node settings", 1, ("behind",)),),
    "node begin": (Line("node begin", 1, ("is in|are in|authority",)),),
    "node add": (Line("node add d", 0),),
    "node join": (Line("node join", 1, ("token",)),),
    "node remove": (Line("node remove d", 1, ("d",)),),
    "node drain": (Line("node drain nowhere", 1, ("There is no node nowhere",)),),
    "node resume": (Line("node resume nowhere", 1, ("There is no node nowhere",)),),
    "shard list": (Line("shard list", 0, ("\nc ",)),),
    "shard move": (Line("shard move a --to c", 1, ("Node c was seen last",)),),
    "shard close": (Line("shard close c", 1, ("c",)),),
    "shard give-up": (Line("shard give-up c", 1, ("only a shard that is being taken in",)),),
    "shard rebuild": (Line("shard rebuild c", 2, ("no files here are the copy",)),),
    "shard import": (Line("shard import", 1, ("is running on",)),),
    # Of this node alone.
    "ping": (Line("ping", 0, ("the manager is connected",)),),
    "doctor": (Line("doctor", ANY, ("the manager answers",)),),
    "metrics": (Line("metrics", 0, ("waypost_up 1",)),),
    "reload": (Line("reload", 0, ("nothing differs|in force|reload",)),),
    "check-config": (Line("check-config", ANY, ("is valid",)),),
    "inject": (Line("inject --from x@sender.example --to r@example.org", 0),),
    "route list": (Line("route list", 0, ("PATTERN",)),),
    "route resolve": (Line("route resolve a@example.org", 0, ("destination:",)),),
    "transport list": (Line("transport list", 0, ("message_active_limit",)),),
    "transport parameters": (Line("transport parameters", 0, ("message_active_limit",)),),
    "transport check": (Line("transport check smtp process_limit=5", 0, ("allowed",)),),
    "transport what-if": (
        Line("transport what-if smtp process_limit=5 --duration 60s", 0, ("Only the mail of shard 0 is simulated",)),
    ),
    "destination show": (Line("destination show {to}", 0, ("destination_concurrency_limit",)),),
    "destination slow": (Line("destination slow {to} --for 2h", 0),),
    "log lines": (Line("log lines -n 3", 0, ("older lines",)),),
    "log dump": (Line("log dump {queue}/journal", 0),),
    "export": (Line("export", 0, ("exported to",)),),
    "identity show": (Line("identity show", 0, ("identity|IDENTITY",)),),
    "dkim list": (Line("dkim list", 0, ("FILE",)),),
    "dkim new": (Line("dkim new sender.example s1", 0, ("v=DKIM1",)),),
    "dkim use": (Line("dkim use sender.example s1 --unpublished --yes", 0),),
    "dkim check": (Line("dkim check", 1, ("dkim",)),),
    "certificate list": (Line("certificate list", 0, ("FILE",)),),
    "certificate request": (Line("certificate request new.example.org", 0, ("BEGIN CERTIFICATE REQUEST",)),),
    "certificate new": (Line("certificate new own.example.org --yes", 0, ("own.example.org",)),),
    "certificate add": (
        Line("certificate add given {files}/mx.pem --key {files}/mx.key --yes", 0, ("given.example.org, by Test CA",)),
    ),
    "map list": (Line("map list", 0, ("FILE",)),),
    "map put": (
        Line("map put aliases {files}/aliases --in rewriting.virtual_alias_maps --yes", 0, ("virtual_alias_maps",)),
    ),
    "map show": (Line("map show {map}", 0, ("kim@example.org",)),),
    "kept list": (Line("kept list", 0, ("{map}", "[rewriting] virtual_alias_maps")),),
    "kept unuse": (Line("kept unuse {map} --yes", 0, ("virtual_alias_maps",)),),
    "kept remove": (
        Line("kept remove {map}", 0, ("{map} is removed from this node", "waypost kept remove at each other node")),
    ),
    "tlsrpt show": (Line("tlsrpt show", 2, ("reports are off",)),),
    "simulate": (
        Line(
            "simulate --live --until 60s",
            1,
            (f"incomplete: only mail of the shards that answer is simulated: {SILENT}",),
        ),
    ),
    # Beside a Waypost that runs.
    "mailcore": (Line("mailcore", 1, ("another Waypost", "is running on {home}")),),
    "setup": (Line("setup --no-start", ANY, ("no user waypost-portal|only root can|portal  ",)),),
    "identity adopt": (Line("identity adopt queue --yes", 1, ("Waypost runs on {home}; stop it first",)),),
    "backup": (
        Line("backup {files}/backup --queue", 0, ("the mail of other shards is not in this backup",)),
        Line("backup {files}/backup --verify", 0, ("undamaged",)),
        Line("backup {files}/settings", 0, ("contents: configuration, keys, portal",), ("other shards",)),
    ),
    "restore": (
        Line("restore {files}/backup", 1, ("nothing was restored: a Waypost runs on {home}; stop it first",)),
        Line(
            "restore {files}/backup --into {files}/home --config {files}/home/waypost.toml",
            0,
            ("Waypost does not start with this queue, because [nodes] is on", "waypost node join"),
            ("Waypost starts with",),
        ),
    ),
    "import-postfix": (
        Line("import-postfix {files}/postfix/etc", 0, ("myhostname",)),
        Line(f"{IMPORT} --dry-run", 0, ("1 message with 1 recipient would be imported",)),
        Line(f"{IMPORT} --queue", 0, ("1 message with 1 recipient imported",)),
        Line(f"{IMPORT} --queue", 0, ("1 message was imported before",)),
        Line(f"{IMPORT} --list-done", 0, (IN_POSTFIX,)),
    ),
    "report": (
        Line("report {today}", 0, ("{today}: The balance is unknown: ", "shard c was not counted at the")),  # a minute
    ),
    "completion": (Line("completion bash", 0, ("waypost",)),),
    "help": (Line("help queue list", 0, ("queue list",)),),
}
# They draw until they are interrupted, and are typed on a terminal below.
# With --once, it ends by itself; without, it is typed on a terminal below.
ONCE = Line("top --once --interval 0.5", 1, (f"{SILENT}, and",))
DRAWN = {"top": f"{SILENT}, and", "tail": "accepted|receiver|connect"}
# Not typed: they are next hops of a test, and its traffic: they ask no Waypost, and run until they are interrupted. ``demo``
# would send to the node.
APART = {"lab", "demo"}


def test_every_command_is_in_the_table() -> None:
    known = [*LINES, *DRAWN, *APART]
    assert sorted(known) == sorted(LEAVES), "a new command: say in this file what it does while a node is down"


async def typed(node: JoinedNode, *words: str) -> tuple[int, str]:
    """Exit status, and all that a command prints."""
    text = "a good password\n" if "--password-stdin" in words else "Subject: x\n\nx\n" if "inject" in words else "\n"
    try:
        async with asyncio.timeout(REPORT_S if words[0] == "report" else PATIENCE_S):
            status, out, err = await node.waypost(*words, stdin=text)
    except TimeoutError:
        raise AssertionError(f"waypost {' '.join(words)} hangs") from None
    return status, out + err


def wrong(line: Line, status: int, said: str, names: dict[str, str]) -> list[str]:
    """What is not as the table has it."""
    found = [f"status {status}, not {line.status}"] if line.status not in (status, ANY) else []
    found += [
        f"lacks {each!r}" for each in line.says if not any(one.format(**names) in said for one in each.split("|"))
    ]
    found += [f"says {each!r}" for each in (*line.never, "Traceback", f"{OF_C}\n", f"{OF_C}{OF_C}") if each in said]
    return [f"waypost {line.typed}: {each}\n{said[:1500]}" for each in found]


def make_files(place: Path) -> None:
    """What commands are given: a certificate and its key, a map, and a Postfix with one message in its queue."""
    place.mkdir()
    issued = Authority().issue("given.example.org")
    (place / "mx.pem").write_text(issued.certificate)
    (place / "mx.key").write_text(issued.key)
    (place / "aliases").write_bytes(ALIASES)
    etc, queue = place / "postfix" / "etc", place / "postfix" / "queue"
    etc.mkdir(parents=True)
    (etc / "main.cf").write_text("myhostname = old.example.org\n")
    (etc / "master.cf").write_text("smtp inet n - y - - smtpd\n")
    (queue / "deferred" / IN_POSTFIX[0]).mkdir(parents=True)
    records = (
        f"T{int(time.time()) - 60} 0",
        "Sa@sender.example",
        "Rold@example.org",
        "M",
        "NSubject: x",
        "N",
        "Nx",
        "X",
        "E",
    )
    message = queue / "deferred" / IN_POSTFIX[0] / IN_POSTFIX
    message.write_bytes(b"".join(bytes((ord(each[0]), len(each) - 1)) + each[1:].encode() for each in records))
    message.chmod(0o700)


async def drawn(node: JoinedNode, command: str, wanted: str) -> str:
    """What a command draws on a terminal of 120 columns, until it has drawn what is wanted. It ends by Ctrl-C."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    os.set_blocking(ours, False)
    process = subprocess.Popen(  # noqa: ASYNC220  # it takes a millisecond
        [str(COMMAND), command, "--config", str(node.config)], stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    screen = ""

    def draws() -> bool:
        nonlocal screen
        with contextlib.suppress(BlockingIOError, OSError):
            screen += os.read(ours, 65536).decode(errors="replace")
        return any(each in screen for each in wanted.split("|"))

    try:
        await eventually(draws, lambda: f"{wanted!r} on the screen of {command}: {screen[-2000:]}")
        process.send_signal(signal.SIGINT)

        def ends() -> bool:
            draws()  # or it waits for room in the terminal
            return process.poll() is not None

        await eventually(ends, f"the end of {command}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)
    return screen


@pytest.mark.long
async def test_every_command_says_what_is_unknown_while_a_node_is_down(own_cluster: Cluster, tmp_path: Path) -> None:
    sink = CountingSink()
    sink.port = free_port()
    async with joined(tmp_path, own_cluster, sink, "abc", WAITING | EXPORTED) as nodes:
        a, c = nodes.nodes["a"], nodes.nodes["c"]
        for name, count in SIZES.items():
            await nodes.accept(name, count)
        await sees(a, ALL, 3)
        items = await listed(a)
        names = {
            "a": ids_of(items, "a@")[0], "c": ids_of(items, "c@")[0], "to": f"smtp:[127.0.0.1]:{sink.port}",
            "queue": str(a.home / "queue"), "home": str(a.home), "files": str(tmp_path / "files"),
            "map": str(reference_of("map", "aliases", ALIASES)), "today": str(datetime.now(ZoneInfo(ZONE)).date()),
        }  # fmt: skip
        await asyncio.to_thread(make_files, tmp_path / "files")
        c.kill_all()

        async def is_silent() -> bool:
            _, said = await typed(a, "status")
            return "c is silent" in said

        await eventually(is_silent, "c to be silent")
        found: list[str] = []
        for lines in (*LINES.values(), (ONCE,)):
            for line in lines:
                status, said = await typed(a, *line.typed.format(**names).split())
                found += wrong(line, status, said, names)
        for command, wanted in DRAWN.items():
            screen = await drawn(a, command, wanted)
            found += [f"{command} says {each!r}" for each in ("Traceback",) if each in screen]
        assert not found, "\n".join(found)

        await c.start()
        await eventually(lambda: _has_all(a), "the mail of c again")


async def _has_all(node: JoinedNode) -> bool:
    status, said = await typed(node, "queue", "size")
    return status == 0 and said.startswith(f"{ALL + 2} messages")  # and those that were handed in
