"""Queue files of a real Postfix, read beside postcat; and files that somebody spoilt."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
from pathlib import Path

import pytest

from mailcore.import_postfix.queue_directory import MasterRuns, aside, message_files, postfix_stopped
from mailcore.import_postfix.queue_file import QueuedMessage, content, read_message
from mailcore.import_postfix.records import FileFault, records
from tests.import_postfix.old_queue import OldQueue, postcat

RECIPIENT = re.compile(r"^recipient: (.*)$", re.MULTILINE)
DONE = re.compile(r"^done_recipient: ", re.MULTILINE)


def read(queue: str, path: Path) -> tuple[QueuedMessage, bytes]:
    with path.open("rb") as file:
        return read_message(queue, path, file), b"".join(content(file, 1000))


def messages(old: OldQueue) -> dict[str, QueuedMessage]:
    """By what they are for."""
    names = {queue_id: what for what, queue_id in old.ids.items()}
    return {names[path.name]: read(queue, path)[0] for queue, path in message_files(old.queue)}


def test_each_message_is_read_as_postcat_reads_it(old: OldQueue) -> None:
    found = list(message_files(old.queue))
    assert len(found) == len(old.ids) == 6
    for queue, path in found:
        message, data = read(queue, path)
        envelope = postcat(old.etc, path, "-e")
        assert RECIPIENT.findall(envelope) == [address for _, address in message.recipients]
        assert len(DONE.findall(envelope)) == message.done
        assert f"\nsender: {message.sender}\n" in envelope
        said = postcat(old.etc, path, "-hb").encode("utf-8", "surrogateescape")
        assert data == said
        assert message.content_bytes == len(data)


def test_what_is_delivered_is_not_among_the_recipients_and_keeps_its_place(old: OldQueue) -> None:
    found = messages(old)
    assert found["partly"].recipients == [(1, "b@example.org"), (2, "c@example.org")]
    assert found["partly"].done == 1
    assert {what: each.queue for what, each in found.items()} == {
        "partly": "deferred", "bounce": "deferred", "held": "hold", "new": "incoming", "dropped": "maildrop",
        "dropped -t": "maildrop",
    }  # fmt: skip
    assert [what for what, each in found.items() if each.held] == ["held"]
    assert found["bounce"].sender == ""
    assert found["dropped -t"].recipients == [(0, "h@example.org"), (1, "i@example.org")]


def test_a_file_that_was_never_complete_is_refused(old: OldQueue) -> None:
    path = old.queue / "incoming" / old.ids["new"]
    path.chmod(0o600)
    with pytest.raises(FileFault, match="not complete"):
        read("incoming", path)
    path.chmod(0o700)
    os.truncate(path, path.stat().st_size - 3)
    with pytest.raises(FileFault, match="ends"):
        read("incoming", path)


def test_a_spoilt_file_is_a_fault_or_another_message_and_nothing_else(old: OldQueue, tmp_path: Path) -> None:
    _, original = next((q, p.read_bytes()) for q, p in message_files(old.queue) if p.name == old.ids["partly"])
    chance = random.Random(7)
    for _ in range(300):
        data = bytearray(original)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        file = io.BytesIO(bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data))
        with contextlib.suppress(FileFault):
            assert len(list(records(file))) < len(original)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"p\x010p\x0216", "ends at byte"),
        (b"N\x01xp\x011", "circle|byte"),
        (b"p\x05    3", "ends|circle"),
        (b"N\xff\xff\xff\xff\xff\x01", "length"),
        (b"N\xff\xff\xff\x7f", "has .* bytes"),
        (b"p\x03abc", "no valid target"),
    ],
)
def test_pointers_and_lengths_lead_to_an_end(data: bytes, fault: str) -> None:
    with pytest.raises(FileFault, match=fault):
        list(records(io.BytesIO(data)))


def test_a_circle_of_pointers_ends() -> None:
    circle = b"N\x01x" + b"N\x01yp\x013"
    with pytest.raises(FileFault, match="circle"):
        list(records(io.BytesIO(circle)))


@pytest.mark.parametrize("kind", [b">", b"V", b"K"])
def test_what_waypost_could_not_deliver_likewise_stays(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "ABCDEF"
    path.write_bytes(b"T\x011S\x01s" + kind + b"\x01x" + b"R\x01rM\x00X\x00E\x00")
    path.chmod(0o700)
    with pytest.raises(FileFault):
        read("deferred", path)
    path.write_bytes(path.read_bytes().replace(kind + b"\x01x", b""))
    assert read("deferred", path)[0].recipients == [(0, "r")]


@pytest.mark.parametrize("record", [b"x\x02yy", b"R\x01q", b"M\x00", b"E\x00"])
def test_a_message_with_something_else_amidst_its_content_stays(tmp_path: Path, record: bytes) -> None:
    path = tmp_path / "ABCDEF"
    whole = b"T\x011S\x01sR\x01rM\x00N\x01ap\x010w\x01 L\x01bN\x01cX\x00E\x00"
    path.write_bytes(whole.replace(b"L\x01b", record + b"L\x01b"))
    path.chmod(0o700)
    with pytest.raises(FileFault, match="is damaged: the record at byte 20 does not belong to message content"):
        read("deferred", path)
    path.write_bytes(whole)
    assert read("deferred", path)[1] == b"a\nbc\n"


def test_a_queue_whose_master_runs_is_not_touched(old: OldQueue) -> None:
    assert (
        old.refused
        == f"Postfix is running on {old.refused_at} (process {old.master}); stop it first, or import a copy of its queue"
    )
    with postfix_stopped(old.queue), pytest.raises(MasterRuns, match="stop it first"), postfix_stopped(old.queue):
        pass
    (old.queue / "pid" / "master.pid").unlink()
    with postfix_stopped(old.queue):
        pass


def test_what_lies_aside_is_named(old: OldQueue) -> None:
    assert aside(old.queue, "corrupt") == set()
    (old.queue / "corrupt" / "ABC123").write_text("x")
    assert aside(old.queue, "corrupt") == {"ABC123"}
    assert aside(old.queue, "no-such") == set()
