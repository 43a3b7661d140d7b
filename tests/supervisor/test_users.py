"""Receivers and deliverers as users of their own: who may write, who may read, who may do neither.

Only root can start them so; Debian's own accounts stand for them: ``games`` for who starts it, ``man`` for the receivers,
``news`` for the deliverers, ``mail`` for the group, and ``www-data`` for the portal.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mailcore.lab.lab import Lab
from mailcore.supervisor.users import UsersError, find_users
from mailcore.tls_sessions import read_day
from tests.deliverer.dns_server import NameServer, answering
from tests.end_to_end.appliance import COMMAND
from tests.running.catcher import Catcher
from tests.running.running_core import DATA, RunningCore, Sections, route_to
from tests.test_tidy import ROOT

CORE, RECEIVER, DELIVERER, GROUP, PORTAL = "games", "man", "news", "mail", "www-data"
BIG = DATA + b"filler\r\n" * 40_000  # beyond inline_limit: a spool file of the receiver
CAPABILITIES = "+setuid,+setgid,+kill"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of several users")


@pytest.fixture
def place() -> Iterator[Path]:
    """Not below pytest's own directory, which other users may not enter."""
    directory = Path(tempfile.mkdtemp(prefix="waypost-users-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


# In mounts of its own: what lies in somebody's closed home (a Python, the checkout) is put where others can reach it.
ENTER = """set -eu
place=$1 closed=$2 needed=$3
shift 3
for path in $needed; do mkdir -p "$place$path"; mount --bind "$path" "$place$path"; done
for path in $closed; do mount -t tmpfs -o mode=755 tmpfs "$path"; done
for path in $needed; do mkdir -p "$path"; mount --bind "$place$path" "$path"; done
exec "$@"
"""


def entered(place: Path, command: Sequence[str]) -> list[str]:
    """The command, able to reach what it needs as any user."""
    needed = [Path(sys.base_prefix), Path(sys.prefix), ROOT]
    above = {directory for path in needed for directory in path.resolve().parents}
    closed = sorted(each for each in above if not each.stat().st_mode & 0o001)
    if not closed:
        return list(command)
    hidden = sorted({path.resolve() for path in needed if set(path.resolve().parents) & set(closed)})
    words = [" ".join(map(str, paths)) for paths in (closed[:1], hidden)]
    return ["unshare", "--mount", "sh", "-c", ENTER, "sh", str(place / "mounts"), *words, *command]


class OwnUsers(RunningCore):
    """Started by ``games``, with the right to take the other two."""

    def launch(self) -> None:
        self.home.mkdir(exist_ok=True)
        os.chown(self.home, pwd.getpwnam(CORE).pw_uid, pwd.getpwnam(CORE).pw_gid)
        groups = ",".join(str(grp.getgrnam(name).gr_gid) for name in (GROUP, RECEIVER, PORTAL))
        command = [
            *("setpriv", f"--reuid={CORE}", f"--regid={CORE}", f"--groups={groups}"),
            *(f"--inh-caps={CAPABILITIES}", f"--ambient-caps={CAPABILITIES}", "--no-new-privs"),
            *(str(COMMAND), "mailcore", "--config", str(self.config)),
            *("--receiver-user", RECEIVER, "--deliverer-user", DELIVERER, "--group", GROUP),
        ]
        with self.output.open("ab") as out:
            self._process = subprocess.Popen(
                entered(self.directory, command), stdout=out, stderr=out, start_new_session=True
            )


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def reached(place: Path, user: str, groups: list[str], how: int, paths: Iterable[Path]) -> set[Path]:
    """Which of the paths a process of that user may open so; ``how`` is os.R_OK or os.W_OK."""
    gids = ",".join(str(grp.getgrnam(name).gr_gid) for name in groups)
    script = "import os, sys; print(*(p for p in sys.argv[2:] if os.access(p, int(sys.argv[1]))), sep='\\n')"
    command = ["setpriv", f"--reuid={user}", f"--regid={user}", *([f"--groups={gids}"] if gids else ["--clear-groups"])]
    command += [sys.executable, "-c", script, str(how), *map(str, paths)]
    done = subprocess.run(entered(place, command), check=True, capture_output=True, text=True)
    return {Path(line) for line in done.stdout.splitlines() if line}


async def submitted_by_anybody(core: OwnUsers, place: Path, drop: Path) -> None:
    """A user without rights submits with sendmail; other users can neither list the maildrop nor read what is there."""
    config = place / "for-all.toml"
    config.write_text(core.config.read_text())
    config.chmod(0o644)
    os.kill(core.processes()["control"], signal.SIGSTOP)  # nothing is taken meanwhile
    command = ["setpriv", f"--reuid={PORTAL}", f"--regid={PORTAL}", "--clear-groups", sys.executable, "-m"]
    command += [
        "mailcore.cli.postfix.main",
        "sendmail",
        "-C",
        str(config),
        "-f",
        "sender@example.org",
        "local@example.org",
    ]
    await asyncio.to_thread(subprocess.run, entered(place, command), check=True, input=b"Subject: x\n\nbody\n")
    (name,) = os.listdir(drop)
    assert reached(place, DELIVERER, [GROUP], os.R_OK, [drop, drop / name]) == set()
    assert reached(place, RECEIVER, [GROUP], os.R_OK, [drop, drop / name]) == set()
    remove = ["setpriv", f"--reuid={DELIVERER}", f"--regid={DELIVERER}", "--clear-groups", "rm", "-f", str(drop / name)]
    removed = await asyncio.to_thread(subprocess.run, entered(place, remove), check=False, capture_output=True)
    assert removed.returncode != 0
    os.kill(core.processes()["control"], signal.SIGCONT)

    async def taken() -> bool:
        return any(line["event"] == "accepted" and line["login"] == PORTAL for line in core.log())

    await core.eventually(taken, "the message of a local program")
    assert os.listdir(drop) == []


@as_root
async def test_each_writes_where_it_must_and_nowhere_else(place: Path) -> None:
    async with Lab(["greylist(1):127.0.0.1:0"]) as lab:
        sections: Sections = {"export": {"enabled": True}, "control": {"group": PORTAL}}
        core = OwnUsers(place, {"*": route_to(lab, 0), "away.example": "smtp:[127.0.0.1]:1"}, sections)
        await core.start()
        try:
            processes = core.processes()
            for queue_id in (
                await core.send("inline@example.org"),
                await core.send("big@example.org", data=BIG),
                await core.inject("injected@example.org"),
            ):
                await core.until_removed(queue_id)  # deferred once: it was in the lanes of both, and in the spool
            assert lab.hops[0].counters.messages == 3
            carried = await core.send("a@away.example")  # its data is in the lane where it waits
            kept = {await core.send("b@away.example", data=BIG)}
            for queue_id in kept | {carried, await core.inject("c@away.example")}:
                await core.until_in(queue_id, "retry")
            owners = {
                name: pwd.getpwuid(int(status_of(pid)["Uid"].split()[0])).pw_name for name, pid in processes.items()
            }
            assert owners == {
                **dict.fromkeys(("supervisor", "manager", "control", "exporter"), CORE),
                "receiver.0": RECEIVER,
                "deliverer.0": DELIVERER,
            }
            held = {name: int(status_of(pid)["CapPrm"], 16) for name, pid in processes.items() if name != "supervisor"}
            assert set(held.values()) == {0}
            everything = [core.home, *core.home.rglob("*")]
            mail = [each for each in everything if each.is_file() and {"queue", "spool"} & set(each.parts)]
            sockets = {core.home / "run" / "manager.sock"}  # written to by being connected to
            drop = core.home / "maildrop"
            assert reached(place, DELIVERER, [GROUP], os.W_OK, everything) == sockets | {drop}
            await submitted_by_anybody(core, place, drop)
            read = reached(place, DELIVERER, [GROUP], os.R_OK, mail)
            assert {each.name for each in read} >= kept
            assert any(each.parent.name.startswith("retry.") and each.suffix == ".seg" for each in read)
            assert {each for each in mail if each.exists()} <= read
            assert reached(place, PORTAL, [], os.R_OK, mail) == set()
            journal = set(core.home.glob("queue/journal/*"))
            assert reached(place, RECEIVER, [GROUP], os.W_OK, journal) == set()
            # Events and the control socket are for whoever is in its group; a password may be in the settings.
            for_portal = {core.home / "events", core.home / "run" / "control.sock"}
            not_for_portal = {core.home / "run" / "settings.json", *sockets}
            assert reached(place, PORTAL, [], os.R_OK, for_portal | not_for_portal) == for_portal
            # Root adds a user who may log in: the receivers read it, and no other process but the core's own.
            adding = [str(COMMAND), "user", "add", "a@example.org", "--password-stdin", "--config", str(core.config)]
            await asyncio.to_thread(
                subprocess.run, adding, check=True, input=b"correct horse\n", stdout=subprocess.DEVNULL
            )
            users = core.home / "users.jsonl"
            assert (users.owner(), users.group(), users.stat().st_mode & 0o777) == (CORE, RECEIVER, 0o640)
            assert reached(place, RECEIVER, [GROUP], os.R_OK, [users]) == {users}
            assert reached(place, RECEIVER, [GROUP], os.W_OK, [users]) == set()
            assert reached(place, DELIVERER, [GROUP], os.R_OK, [users]) == set()
            assert reached(place, PORTAL, [], os.R_OK, [users]) == set()
            users.chmod(0o600)
            os.chown(users, 0, 0)  # as after a mistake: it stops no start
            await core.kill("supervisor")  # its children end with it, though they are others'
            await core.until_removed(await core.send("again@example.org", data=BIG))
        finally:
            await core.control.close()
            core.stop()


@pytest.mark.long
@as_root
async def test_what_deliverers_count_of_tls_is_read_reported_and_removed_by_control(place: Path) -> None:
    records = {f"{name}.example MX": ["10 mx.example."] for name in ("target", "reports")}
    records |= {"mx.example A": ["127.0.0.1"]}
    records["_smtp._tls.target.example TXT"] = ['"v=TLSRPTv1; rua=mailto:tls@reports.example"']
    async with Catcher() as catcher, answering(NameServer(records)) as names:
        deliverer = {"nameservers": [names.text], "port": int(catcher.route.rpartition(":")[2]), "processes": 2}
        tlsrpt = {"sender": "tls-reports@our.example", "write_s": 1.0, "spread_s": 0}
        core = OwnUsers(place, {}, {"tlsrpt": tlsrpt, "deliverer": deliverer})
        counts, today = core.home / "tlsrpt", datetime.now(UTC).date()
        await core.start()
        try:

            async def counted() -> bool:
                days = [read_day(counts, today + timedelta(days=each)).get("target.example") for each in (0, 1)]
                return sum(sum(day.values()) for day in days if day) == 1

            await core.until_removed(await core.send("one@target.example"))
            await core.eventually(counted, "a session")
            (written,) = counts.iterdir()
            assert (written.owner(), written.group(), written.stat().st_mode & 0o777) == (DELIVERER, GROUP, 0o640)
            assert (counts.owner(), counts.group(), counts.stat().st_mode & 0o7777) == (CORE, GROUP, 0o3770)
            core.stop()
            await core.control.close()
            shutil.copy(written, old := counts / f"2020-01-01.{'a' * 16}.jsonl")
            shutil.chown(old, DELIVERER, GROUP)
            written.rename(counts / f"{today - timedelta(days=2)}.{'b' * 16}.jsonl")
            await core.start()

            async def reported() -> bool:
                return len(catcher.caught) == 2

            await core.eventually(reported, "the report")
            assert catcher.caught[-1][:2] == ("tls-reports@our.example", ["tls@reports.example"])
            assert not old.exists()
            sent = core.home / "tlsrpt-sent.jsonl"
            await core.until(lambda: '"done"' in sent.read_text(), "the note that it was sent")
            assert sent.owner() == CORE
            assert reached(place, DELIVERER, [GROUP], os.W_OK, [counts, core.home, sent]) == {counts}
            assert reached(place, PORTAL, [], os.R_OK, [counts, sent]) == set()
        finally:
            await core.control.close()
            core.stop()


def test_all_three_or_none() -> None:
    assert find_users("", "", "").of("receiver") is None
    with pytest.raises(UsersError, match="together, or none"):
        find_users(RECEIVER, "", GROUP)


@pytest.mark.parametrize(
    ("receiver", "deliverer", "group", "words"),
    [
        ("nobody-of-that-name", DELIVERER, GROUP, "there is no user 'nobody-of-that-name'"),
        (RECEIVER, DELIVERER, "no-such-group", "there is no group 'no-such-group'"),
        (RECEIVER, RECEIVER, GROUP, "three different users"),
        ("root", DELIVERER, GROUP, "three different users"),
        (RECEIVER, DELIVERER, RECEIVER, "different groups" if os.geteuid() == 0 else "is missing"),
    ],
)
def test_users_with_whom_nothing_would_be_kept_apart_are_refused(
    receiver: str, deliverer: str, group: str, words: str
) -> None:
    with pytest.raises(UsersError, match=words):
        find_users(receiver, deliverer, group)
