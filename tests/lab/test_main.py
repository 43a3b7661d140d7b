"""The command line: a lab of its own process, asked over its control socket."""

import json
import signal
import smtplib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.lab.control import ask
from mailcore.lab.main import main


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[dict[str, object]]]]:
    file = tmp_path / "lab.toml"
    file.write_text('[[hop]]\nname = "greedy"\n[[hop]]\nname = "dead"\ntemper = "dead_for(3600)"\n')
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "mailcore.lab.main", "--file", str(file), "--hop", "reject(c@*):127.0.0.1:0"),
            *("--control", str(tmp_path / "lab.sock"), "--events", str(tmp_path / "events")),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [json.loads(process.stdout.readline()) for _ in range(3)]
    yield process, lines
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_lab_tells_where_it_listens_and_what_it_got(
    lab: tuple[subprocess.Popen[str], list[dict[str, object]]], tmp_path: Path
) -> None:
    process, lines = lab
    assert [(line["name"], line["listening"]) for line in lines] == [("greedy", True), ("dead", False), ("hop2", True)]
    with smtplib.SMTP(str(lines[0]["host"]), int(str(lines[0]["port"]))) as smtp:
        smtp.sendmail("a@example.org", ["b@example.org", "c@example.org"], "X-Ledger-Id: 5\r\n\r\nhello\r\n")
    with smtplib.SMTP(str(lines[2]["host"]), int(str(lines[2]["port"]))) as smtp:
        assert list(smtp.sendmail("a@example.org", ["b@example.org", "c@example.org"], "x\r\n")) == ["c@example.org"]

    sock = tmp_path / "lab.sock"
    counters = ask(sock, {"do": "counters"})["hops"]
    assert (counters["greedy"]["messages"], counters["greedy"]["recipients"]) == (1, 2)
    assert counters["hop2"]["refused"] == {"550": 1}
    page = ask(sock, {"do": "ledger", "hop": "greedy"})
    assert [arrival["id"] for arrival in page["arrivals"]] == ["5"]
    assert ask(sock, {"do": "ledger", "after": 1, "limit": 1})["arrivals"][0]["hop"] == "hop2"

    assert ask(sock, {"do": "temper", "hop": "dead", "temper": "silent(mail)"})["ok"], "the name before it was renamed"
    assert ask(sock, {"do": "behaviour", "hop": "dead", "behaviour": "accept"})["ok"]
    assert ask(sock, {"do": "counters", "hop": "dead"})["hops"]["dead"]["listening"]
    assert ask(sock, {"do": "reset"})["ok"]
    assert ask(sock, {"do": "ledger"})["arrivals"] == []
    for wrong in ({"do": "nothing"}, {"do": "ledger", "hop": "x"}, {"do": "ledger", "limit": 0}, {"do": "behaviour"}):
        assert not ask(sock, wrong)["ok"]

    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert [event["hop"] for event in events] == ["greedy", "hop2"]
    assert not sock.exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--hop", "kind:127.0.0.1:0"], "there are: accept"),
        (["--hop", "accept:192.0.2.1:1"], "hop0 (192.0.2.1:1)"),
        (["--file", "/nonexistent"], "No such file"),
        (["--ask", "/nonexistent"], "No such file"),
    ],
)
def test_a_lab_that_cannot_begin_says_why(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["x = 1", "hop = 1", "[[hop]]\ntempr = 'accept'", "[[hop]]\nport = 'smtp'", "[[hop]]\nport = 70000", "["]
)
def test_a_wrong_file_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(text)
    assert main(["--file", str(file)]) == 1
    assert str(file) in capsys.readouterr().err
