"""Exit status 0 of sendmail means that the message is on disk, whole; any other, that there is no message."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mailcore.cli.postfix.main import main
from mailcore.log.disk import Disk
from mailcore.pickup.letter import HEADER_BYTES_MAX
from tests.cli.postfix.maildrop_home import HOST, Home, smtp


def sent(home: Home, *argv: str, text: bytes = b"Subject: x\n\nbody\n") -> tuple[str, tuple[str, ...], bytes]:
    assert home.run(*argv, text=text) == 0, home.err
    dropped = home.only()
    return dropped.submission.sender, dropped.submission.recipients, dropped.text  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("argv", "sender", "recipients"),
    [
        (("-f", "a@e.org", "b@e.net"), "a@e.org", ("b@e.net",)),
        (("-fa@e.org", "--", "b@e.net", "b@e.net"), "a@e.org", ("b@e.net",)),
        (("-oi", "-r", "a", "-om", "-B8BITMIME", "root"), f"a@{HOST}", (f"root@{HOST}",)),
        (("-f", "<>", "b@e.net, C D <c@e.net>"), "", ("b@e.net", "c@e.net")),
        (("-bm", "-f", "A B <a@e.org>", "-F", "Name", "b@e.net"), "a@e.org", ("b@e.net",)),
        (
            ("-f", '"a"@e.org', '"b"', '"c d"@e.net', '"b@e"@e.net'),
            "a@e.org",
            (f"b@{HOST}", '"c d"@e.net', '"b@e"@e.net'),
        ),
        (("-Am", "-n", "-m", "-oem", "-v", "-L", "tag", "-f", "a@e.org", "b@e.net"), "a@e.org", ("b@e.net",)),
    ],
)
def test_options_are_those_of_postfix(
    home: Home, argv: tuple[str, ...], sender: str, recipients: tuple[str, ...]
) -> None:
    assert sent(home, *argv) == (sender, recipients, b"Subject: x\n\nbody\n")


@pytest.mark.parametrize(
    ("header", "recipients"),
    [
        (b"To: b@e.net\nCc: c@e.net\nBcc: d@e.net\n", ("b@e.net", "c@e.net", "d@e.net")),
        (b'To: "x, y" <b@e.net>,\n c@e.net (note)\n', ("b@e.net", "c@e.net")),
        (b"To: Team: b@e.net, root;\n", ("b@e.net", f"root@{HOST}")),
        (b"To: undisclosed-recipients:;\nBcc: d@e.net\n", ("d@e.net",)),
        (b"To: b@e.net\nResent-To: r@e.net\n", ("r@e.net",)),
        (b"To: b@e.net, B@E.net\nCc: b@e.net\n", ("b@e.net", "B@E.net")),
    ],
)
def test_t_takes_the_recipients_from_the_header(home: Home, header: bytes, recipients: tuple[str, ...]) -> None:
    text = header + b"Subject: x\n\nTo: nobody@e.net\n"
    assert sent(home, "-t", "-f", "a@e.org", text=text) == ("a@e.org", recipients, text)


@pytest.mark.parametrize(
    ("argv", "text", "status", "says"),
    [
        ((), b"x", 64, "recipients"),
        (("-t",), b"Subject: x\n\n", 64, "no recipient"),
        (("-t",), b"To: a@b c@d\n\n", 65, "not a list"),
        (("-t",), b"To: a b\n\n", 65, ""),
        (("a b@e.org",), b"x", 64, ""),
        (("-f", "a b", "b@e.net"), b"x", 64, "-f"),
        (("-bd",), b"", 64, "not a daemon"),
        (("-bv",), b"", 64, "name the addresses"),
        (("-bv", "-t"), b"To: b@e.net\n\n", 64, "-t cannot"),
        (("-bv", "-f", "<>", "b@e.net"), b"", 64, "needs a reader"),
        (("-bv", *(f"b{number}@e.net" for number in range(101))), b"", 64, "at most 100"),
        (("-q30m",), b"", 64, "retries automatically"),
        (("-Z", "b@e.net"), b"", 64, "unknown option"),
        (("-f",), b"", 64, "needs a value"),
        (("-N", "never,success", "b@e.net"), b"", 64, "-N"),
        (("b@e.net",), b"x" * 5001, 69, "bigger"),
        (("-C", "/nonexistent.toml", "b@e.net"), b"x", 78, "nonexistent"),
    ],
)
def test_what_is_wrong_has_a_status_and_a_sentence_and_leaves_nothing(
    home: Home, argv: tuple[str, ...], text: bytes, status: int, says: str
) -> None:
    assert home.run(*argv, text=text) == status
    assert says in home.err
    assert home.err.startswith("sendmail: fatal: ")
    assert os.listdir(home.maildrop) == []


def test_bv_asks_about_addresses_and_a_core_that_does_not_know_it_tells_the_reader_alone(home: Home) -> None:
    assert home.run("-bv", "-f", "a@e.org", "b@e.net, root", "b@e.net", text=b"not read") == 0, home.err
    dropped = home.only()
    asked = dropped.submission
    assert asked.verify == ("b@e.net", f"root@{HOST}")
    assert (asked.sender, asked.recipients) == ("", ("a@e.org",))
    assert b"route resolve" in dropped.text  # type: ignore[attr-defined]
    assert b"not read" not in dropped.text  # type: ignore[attr-defined]


def test_a_lone_dot_ends_the_message_unless_i_is_given(home: Home) -> None:
    text = b"a\n..\n.x\n.\nlost\n"
    assert sent(home, "b@e.net", text=text)[2] == b"a\n..\n.x\n"
    assert sent(home, "b@e.net", text=b"a\r\n.\r\nlost\r\n")[2] == b"a\r\n"
    assert sent(home, "-i", "b@e.net", text=text)[2] == text
    long = b"x" * 4000 + b".\n"  # the dot is not at the beginning of its line
    assert sent(home, "b@e.net", text=long)[2] == long


def test_parameters_of_dsn_come_along(home: Home) -> None:
    assert home.run("-N", "success,failure", "-R", "hdrs", "-V", "id=1", "b@e.net", "c@e.net") == 0
    submission = home.only().submission
    assert submission.options == (("RET", "HDRS"), ("ENVID", "id+3D1"))
    assert submission.recipient_options == ((("NOTIFY", "SUCCESS,FAILURE"),),) * 2


def test_a_maildrop_that_is_missing_shut_full_or_broken_is_a_temporary_failure(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        assert home.run("b@e.net") == 0
    assert home.run("b@e.net") == 75
    assert "files_max" in home.err
    for name in home.names():
        (home.maildrop / name).unlink()

    def fails(disk: Disk, *arguments: object) -> None:
        raise OSError(5, "Input/output error")

    for call in ("sync", "sync_directory", "replace", "write"):
        with monkeypatch.context() as broken:
            broken.setattr(Disk, call, fails)
            assert home.run("b@e.net") == 75, call
            assert os.listdir(home.maildrop) == [], call
    home.maildrop.rmdir()
    assert home.run("b@e.net") == 75
    assert "never started" in home.err


def test_names_are_synced_before_the_status_is_zero(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """law: submitted-is-durable."""
    calls: list[str] = []
    for call in ("sync", "replace", "sync_directory"):

        def noted(disk: Disk, *arguments: object, call: str = call, real: object = getattr(Disk, call)) -> object:
            calls.append(call)
            return real(disk, *arguments)  # type: ignore[operator]

        monkeypatch.setattr(Disk, call, noted)
    assert home.run("b@e.net") == 0
    assert calls == ["sync", "replace", "sync_directory"]


def test_one_who_may_not_read_the_directory_syncs_the_whole_file_system(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """law: submitted-is-durable, for every other user of the host."""
    synced: list[int] = []

    def refused(disk: Disk, path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Disk, "sync_directory", refused)
    monkeypatch.setattr("mailcore.pickup.dropped._sync_file_system", synced.append)
    assert home.run("b@e.net") == 0
    assert len(synced) == 1


def test_a_program_that_is_killed_leaves_no_message(home: Home, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mailcore.cli.postfix.main", "sendmail", "b@e.net"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"Subject: x\n\n" + b"half\n" * 20_000)
        process.stdin.flush()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode in (75, 69, -signal.SIGTERM), err
    assert home.names() == []


@pytest.mark.parametrize("closed", ["<&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_descriptor_that_the_caller_closed_is_as_dev_null(home: Home, closed: str) -> None:
    command = f'"{sys.executable}" -m mailcore.cli.postfix.main sendmail -f a@e.org b@e.net {closed}'
    ended = subprocess.run(command, check=False, shell=True, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert home.only().submission.recipients == ("b@e.net",)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_output_that_nobody_takes_is_no_fault(closed: str) -> None:
    command = f'"{sys.executable}" -m mailcore.cli.postfix.main newaliases {closed}'
    ended = subprocess.run(command, check=False, shell=True, capture_output=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert b"panic" not in ended.stderr


def test_newaliases_says_what_waypost_does_instead(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["/usr/bin/newaliases"]) == 0
    assert "virtual_alias_maps" in capsys.readouterr().err
    assert main(["waypost-sendmail", "newaliases"]) == 0
    capsys.readouterr()
    assert main(["waypost-sendmail"]) == 64
    assert "sendmail" in capsys.readouterr().err


def test_bs_speaks_smtp_and_says_250_only_for_what_is_on_disk(home: Home) -> None:
    talk = b"EHLO me\nMAIL FROM:<a@e.org> BODY=8BITMIME\nRCPT TO:<b@e.net>\nDATA\nSubject: x\n\n..dot\nend\n.\nQUIT\n"
    assert smtp(home, talk) == ["220", "250", "250", "250", "354", "250", "221"]
    dropped = home.only()
    assert (dropped.submission.sender, dropped.submission.recipients) == ("a@e.org", ("b@e.net",))
    assert dropped.text == b"Subject: x\r\n\r\n.dot\r\nend\r\n"  # type: ignore[attr-defined]


LONG_HEADER = b"X-Long: " + b"x" * 70 + b"\n"


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("has_end", [True, False])
def test_a_header_section_that_waypost_would_put_aside_is_refused(home: Home, line_end: bytes, has_end: bool) -> None:
    """Otherwise it would be set aside after status 0, and its sender would not hear of it."""
    home.allow(4 << 20)
    header = LONG_HEADER.replace(b"\n", line_end) * (HEADER_BYTES_MAX // len(LONG_HEADER) + 2)
    text = header + (line_end + b"body" + line_end if has_end else b"")
    assert home.run("b@e.net", text=text) == 65
    assert "header section is longer than" in home.err
    talk = b"HELO me\nMAIL FROM:<>\nRCPT TO:<b@e.net>\nDATA\n" + text.replace(b"\r", b"") + b".\nQUIT\n"
    assert smtp(home, talk) == ["220", "250", "250", "250", "354", "552", "221"]
    assert os.listdir(home.maildrop) == []


@pytest.mark.parametrize("header", [b"", LONG_HEADER * 13_000, b"no field\n"])
def test_a_long_message_with_a_header_section_that_is_not_too_long_is_taken(home: Home, header: bytes) -> None:
    home.allow(4 << 20)
    text = header + b"\n" + b"x" * (2 << 20)
    assert sent(home, "b@e.net", text=text)[2] == text


def test_bs_refuses_in_words_and_takes_no_half_message(home: Home) -> None:
    assert smtp(home, b"DATA\nRCPT TO:<b@e.net>\nMAIL FROM:<a b>\nMAIL FROM:<>\nMAIL FROM:<>\nRCPT TO:<b c>\nFOO\n") == [
        "220", "503", "503", "501", "250", "503", "501", "500",
    ]  # fmt: skip
    assert smtp(home, b"HELO me\nMAIL FROM:<>\nRCPT TO:<b@e.net>\nDATA\nhalf\n") == ["220", "250", "250", "250", "354"]
    big = b"x" * 100 + b"\n"
    talk = b"HELO me\nMAIL FROM:<>\nRCPT TO:<b@e.net>\nDATA\n" + big * 60 + b".\nQUIT\n"
    assert smtp(home, talk) == ["220", "250", "250", "250", "354", "552", "221"]
    assert os.listdir(home.maildrop) == []


@pytest.mark.parametrize(
    ("words", "wanted"),
    [(("-v",), "SUCCESS,FAILURE,DELAY"), (("-v", "-v"), "SUCCESS,FAILURE,DELAY"), (("-v", "-N", "never"), "NEVER")],
)
def test_v_asks_for_reports_unless_n_says_otherwise(home: Home, words: tuple[str, ...], wanted: str) -> None:
    assert home.run(*words, "b@e.net") == 0
    assert home.only().submission.recipient_options == ((("NOTIFY", wanted),),)


@pytest.mark.parametrize(
    "line",
    ["sendmail root", "sendmail -bs", "sendmail -bp", "mailq", "postqueue -p", "postsuper -d ALL", "qshape"],
)
def test_a_configuration_in_the_current_directory_is_not_read(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """Otherwise any user could take the mail that root's programs send from his directory."""
    monkeypatch.delenv("WAYPOST_CONFIG")
    monkeypatch.setattr("mailcore.cli.postfix.main.INSTALLED", tmp_path / "not-installed.toml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"QUIT\r\n")))
    assert main(line.split()) == 78
    assert home.names() == []
