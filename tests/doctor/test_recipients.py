"""The doctor reads the files of valid recipients."""

from __future__ import annotations

from pathlib import Path

from mailcore.doctor import recipients
from mailcore.doctor.finding import State
from tests.doctor.sample_host import found, sample_host, states

TEXT = '[relay]\ndomains = ["example.org"]\n[recipients]\nknown_by = "file"\nrelay_recipient_maps = ["{}"]\n'


def test_a_file_that_cannot_be_used_is_bad(tmp_path: Path) -> None:
    valid = tmp_path / "valid"
    host = sample_host(tmp_path, TEXT.format(valid))
    assert states(recipients.look(host)) == {State.BAD}
    valid.write_text("")
    assert "no address is in it" in found(recipients.look(host), "recipients").found
    valid.write_text("kim@example.org\n")
    assert states(recipients.look(host)) == {State.GOOD}


def test_a_store_that_was_set_aside_is_shown(tmp_path: Path) -> None:
    host = sample_host(tmp_path, "")
    assert states(recipients.look(host)) == {State.GOOD}
    directory = host.settings.home / "receiver"
    directory.mkdir(parents=True)
    (directory / "recipients.sqlite3.damaged").write_bytes(b"x")
    assert states(recipients.look(host)) == {State.GOOD, State.WARN}
    assert "a damaged store of the receivers" in next(iter(recipients.look(host))).found
