"""A queue that a real Postfix made: mail partly delivered, deferred, held and dropped; the master is stopped.

The next hop takes recipients whose address begins with ``done`` and puts the others off.
"""

from __future__ import annotations

import re
import shutil
import smtplib
import socketserver
import subprocess
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from bench.mta import Postfix
from mailcore.import_postfix.queue_directory import MasterRuns, postfix_stopped
from tests.eventually import PATIENCE_S, eventually_blocking

__all__ = ["OldQueue", "make_old_queue", "postcat", "send", "spread"]

LONG_LINE = b"x" * 5000  # longer than a record of Postfix's

PARTLY = b"Subject: partly\r\nMessage-ID: <partly@example.org>\r\n\r\n.a dot\r\n" + LONG_LINE + b"\r\nlast \xe4\r\n"


@dataclass(frozen=True)
class OldQueue:
    """``etc`` has main.cf, ``queue`` the queue; ``ids`` by what each message is for."""

    etc: Path
    queue: Path
    ids: dict[str, str]
    master: int  # that ran; and what was said to who would have its queue meanwhile
    refused: str = ""
    refused_at: Path = Path()


class _Hop(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(b"220 hop.example\r\n")
        while line := self.rfile.readline():
            verb = line.upper()
            if verb.startswith(b"RCPT TO:") and b"<DONE" not in verb:
                self.wfile.write(b"450 4.2.0 later\r\n")
            elif verb.startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                while self.rfile.readline() not in (b".\r\n", b""):
                    pass
                self.wfile.write(b"250 2.0.0 taken\r\n")
            elif verb.startswith(b"QUIT"):
                self.wfile.write(b"221 bye\r\n")
                return
            else:
                self.wfile.write(b"250 ok\r\n")


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


def make_old_queue(directory: Path) -> OldQueue:
    """Takes about three seconds."""
    with _Server(("127.0.0.1", 0), _Hop) as hop:
        serving = threading.Thread(target=hop.serve_forever, daemon=True)
        serving.start()
        postfix = Postfix(directory, hop.server_address[1])
        etc = directory / "postfix" / "etc"
        queue = directory / "postfix" / "queue"
        postfix.start()
        try:
            ids = {
                "partly": send(
                    postfix.port, "s@example.org", ["done@example.org", "b@example.org", "c@example.org"], PARTLY
                ),
                "bounce": send(postfix.port, "", ["d@example.org"], b"Subject: a bounce\r\n\r\nx\r\n"),
                "held": send(postfix.port, "s@example.org", ["e@example.org"], b"Subject: held\r\n\r\nx\r\n"),
                "new": send(postfix.port, "s@example.org", ["f@example.org"], b"Subject: new\r\n\r\nx\r\n"),
            }
            eventually_blocking(
                lambda: all(_find(queue / "deferred", each) for each in ids.values()), "all to be deferred"
            )
            _run("postsuper", "-c", str(etc), "-h", ids["held"])
            master, refused = postfix.pid, _refusal(queue)
        finally:
            postfix.stop()
            hop.shutdown()
    waiting = _find(queue / "deferred", ids["new"])
    assert waiting
    waiting.rename(queue / "incoming" / ids["new"])  # the same format
    _drop(etc, ["-f", "root", "g@example.org", "local"], b"Subject: dropped\nBcc: secret@example.org\n\nx\n")
    _drop(etc, ["-f", "root@example.org", "-t"], b"To: h@example.org\nCc: i@example.org\nSubject: -t\n\nx\n")
    for path in (queue / "maildrop").iterdir():
        text = path.read_bytes()
        ids["dropped" if b"dropped" in text else "dropped -t"] = path.name
    return OldQueue(etc, queue, ids, master, refused, queue)


def spread(old: OldQueue, directory: Path) -> OldQueue:
    """A copy that a test may spoil."""
    shutil.copytree(old.etc.parent, directory / "postfix", symlinks=True, ignore=_no_sockets)
    return replace(old, etc=directory / "postfix" / "etc", queue=directory / "postfix" / "queue")


def _refusal(queue: Path) -> str:
    try:
        with postfix_stopped(queue):
            return ""
    except MasterRuns as refused:
        return str(refused)


def postcat(etc: Path, path: Path, *options: str) -> str:
    """What Postfix itself says stands in a queue file."""
    return _run("postcat", "-c", str(etc), *options, str(path))


def _no_sockets(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if not (Path(directory) / name).is_file() and not (Path(directory) / name).is_dir()]


def send(port: int, sender: str, recipients: list[str], data: bytes) -> str:
    """Its queue id."""
    with smtplib.SMTP("127.0.0.1", port, timeout=PATIENCE_S) as client:
        client.ehlo("client.example")
        client.mail(sender)
        for recipient in recipients:
            client.rcpt(recipient)
        code, reply = client.data(data)
    match = re.search(rb"queued as (\w+)", reply)
    assert code == 250
    assert match
    return match[1].decode()


def _drop(etc: Path, arguments: list[str], data: bytes) -> None:
    done = subprocess.run(
        ["sendmail", "-C", str(etc), *arguments], input=data, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode("utf-8", "surrogateescape")


def _find(directory: Path, name: str) -> Path | None:
    return next((path for path in directory.rglob(name) if path.is_file()), None)
