"""A copy of another host's Postfix: nothing of this host gets into the import, and what can not be read is said in a line."""

from __future__ import annotations

import json
import os
import socket
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mailcore.cli.main import main
from mailcore.import_postfix import tables
from mailcore.import_postfix.draft import Fate
from mailcore.import_postfix.translation import translate
from tests.doctor.sample_host import certificate
from tests.import_postfix.translating import MASTER, said_of

HERE = "here.example.net"  # the host that runs the command


@pytest.fixture(autouse=True)
def the_name_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: HERE)


def copy(directory: Path, main_cf: str = "", master: str = MASTER) -> Path:
    directory.mkdir(parents=True)
    (directory / "main.cf").write_text(main_cf)
    (directory / "master.cf").write_text(master)
    return directory


class Run:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path, status: int = 0) -> str:
        assert main(["import-postfix", *map(str, arguments)]) == status
        out, err = self._capsys.readouterr()
        if status:
            assert (out, err.count("\n")) == ("", 1), out + err
        return out + err

    def settings(self, *arguments: str | Path) -> dict[str, Any]:
        return tomllib.loads(json.loads(self(*arguments, "--json"))["settings"])


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


# What can not be read


def unreadable(path: Path, kind: str) -> None:
    if kind == "loop":
        path.symlink_to(path.name)
    elif kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "bytes":
        path.write_bytes(b"\xff\n")


KINDS = [
    ("loop", "Too many levels of symbolic links"), ("directory", "Is a directory"), ("pipe", "not a regular file"),
    ("nothing", "No such file"), ("bytes", "not UTF-8"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "why"), KINDS)
def test_a_table_that_can_not_be_read_is_named_with_its_setting(tmp_path: Path, kind: str, why: str) -> None:
    names = ("transport_maps", "relay_domains", "mynetworks", "mydestination")
    etc = copy(tmp_path / "etc", "".join(f"{name} = texthash:/etc/postfix/odd\n" for name in names))
    unreadable(etc / "odd", kind)
    draft, _ = translate(etc, HERE)
    for name in names:
        (finding,) = (each for each in said_of(draft, name) if why in each.said)
        assert (finding.fate, f"{etc}/odd" in finding.said) == (Fate.LEFT, True)
        assert finding.what == f"{name} = texthash:/etc/postfix/odd"
        assert finding.where.startswith("main.cf:")


def test_a_name_with_a_null_byte_is_no_file(tmp_path: Path) -> None:
    draft, _ = translate(copy(tmp_path / "etc", "transport_maps = texthash:/etc/postfix/a\0b\n"), HERE)
    assert any("is not the name of a file" in each.said for each in said_of(draft, "transport_maps"))


@pytest.mark.parametrize(("kind", "why"), KINDS)
def test_a_main_cf_or_master_cf_that_can_not_be_read_is_said_in_a_line(
    tmp_path: Path, run: Run, kind: str, why: str
) -> None:
    etc = copy(tmp_path / "etc", "myhostname = a.example\n")
    (etc / "master.cf").unlink()
    unreadable(etc / "master.cf", kind)
    assert (
        f"master.cf: unreadable\n      cannot be read; assuming Postfix's default listeners and transports ({why}"
        in (run(etc))
    )
    (etc / "main.cf").unlink()
    unreadable(etc / "main.cf", kind)
    said = run(etc, status=2 if kind == "bytes" else 1)
    assert f"{etc}/main.cf" in said
    assert why in said
    unreadable(tmp_path / "loop", "loop")
    assert f"{tmp_path}/loop" in run(tmp_path / "loop", status=1)


def test_a_setting_that_refers_to_itself_has_one_finding_with_its_line(tmp_path: Path) -> None:
    draft, _ = translate(copy(tmp_path / "etc", "myhostname = a.example\nfoo = $foo\n"), HERE)
    (finding,) = (each for each in draft.findings if "foo" in each.what + each.said)
    assert (finding.fate, finding.where, finding.what) == (Fate.LEFT, "main.cf:2", "unreadable")
    assert finding.said == "foo refers to itself or is too long; treated as empty"


def test_without_master_cf_the_usual_listener_is_said_to_be_the_default(tmp_path: Path) -> None:
    etc = copy(tmp_path / "etc")
    (etc / "master.cf").unlink()
    (finding,) = said_of(translate(etc, HERE)[0], "smtp inet")
    assert (finding.where, finding.what) == ("master.cf", "smtp inet smtpd (Postfix's default)")


@pytest.mark.parametrize("name", ["hash:$config_directory", "${default_database_type}:/etc/postfix"])
def test_names_of_postfix_itself_are_expanded(tmp_path: Path, name: str) -> None:
    etc = copy(tmp_path / "etc", f"transport_maps = {name}/transport\n")
    (etc / "transport").write_text("a.example smtp:[192.0.2.1]\n")
    assert translate(etc, HERE)[0].routes["a.example"] == "smtp:[192.0.2.1]"


# The name of the host


def test_a_copy_does_not_get_the_name_of_this_host(tmp_path: Path, run: Run) -> None:
    etc = copy(tmp_path / "etc", "relay_domains = $mydomain, a.example\nsmtp_helo_name = out.$myhostname\n")
    said = run(etc)
    assert HERE not in said
    assert "localdomain" not in said
    assert "main.cf: myhostname is not set\n" in said
    assert "Give it with --hostname NAME, or set hostname in [receiver] and [deliverer]" in said
    assert "It is used by relay_domains, smtp_helo_name" in said
    assert "add the domains made of it to [relay] domains" in said
    settings = run.settings(etc)
    assert "hostname" not in {**settings["receiver"], **settings.get("deliverer", {})}
    assert "a.example" in settings["relay"]["domains"]
    settings = run.settings(etc, "--hostname", "old.example.org")
    assert (settings["receiver"]["hostname"], settings["deliverer"]["hostname"]) == (
        "old.example.org", "out.old.example.org",
    )  # fmt: skip
    assert "example.org" in settings["relay"]["domains"]
    for wrong in ("", "a b"):
        assert "must be a host name" in run(etc, "--hostname", wrong, status=2)


def test_a_name_in_main_cf_is_that_of_its_host(tmp_path: Path, run: Run) -> None:
    settings = run.settings(copy(tmp_path / "etc", "myhostname = old.example.org\n"), "--hostname", "x.example")
    assert settings["receiver"]["hostname"] == settings["deliverer"]["hostname"] == "old.example.org"


@pytest.mark.parametrize("name", ["postfix", "postfix-out"])
def test_the_postfix_of_this_host_has_its_name_and_its_files(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(tables, "CONFIG_DIRECTORY", tmp_path / "etc/postfix")
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail/transport").write_text("a.example smtp:[192.0.2.1]\n")
    (tmp_path / "queue").mkdir()
    etc = copy(
        tmp_path / "etc" / name,
        f"transport_maps = texthash:{tmp_path}/mail/transport, texthash:$config_directory/own\n"
        f"queue_directory = {tmp_path}/queue\n",
    )
    (etc / "own").write_text("b.example smtp:[192.0.2.2]\n")
    settings = run.settings(etc)
    assert settings["receiver"]["hostname"] == settings["deliverer"]["hostname"] == HERE
    assert settings["routes"]["b.example"] == "smtp:[192.0.2.2]"
    assert settings["routes"]["a.example"] == "smtp:[192.0.2.1]"
    assert f"queue directory: {tmp_path}/queue\n" in run(etc, "--dry-run", "--home", tmp_path / "home")
    with (etc / "main.cf").open("a") as main_cf:
        main_cf.write("multi_instance_directories = /etc/postfix-bulk\n")
    assert "Run: waypost import-postfix /etc/postfix-bulk" in run(etc)
    beside = copy(tmp_path / "etc/old-postfix")
    assert "hostname" not in run.settings(beside)["receiver"]


# The queue


def test_the_queue_of_this_host_is_not_read_for_a_copy(tmp_path: Path, run: Run) -> None:
    queue = tmp_path / "spool"
    queue.mkdir()
    etc = copy(tmp_path / "copy", f"myhostname = a.example\nqueue_directory = {queue}\n")
    home = ("--home", tmp_path / "home")
    for mode in ("--dry-run", "--list-done", "--queue"):
        said = run(etc, mode, *home, status=2)
        assert f"queue_directory = {queue}: {queue} is outside of {etc} and is not read" in said
        assert "--queue-directory DIR" in said
        assert "an empty value is not allowed" in run(etc, mode, "--queue-directory", "", *home, status=2)
    assert f"queue directory: {queue}\n0 messages" in run(etc, "--dry-run", "--queue-directory", queue, *home)
    told = json.loads(run(etc, "--dry-run", "--queue-directory", queue, "--json", *home))
    assert told["queue_directory"] == str(queue)
    (etc / "main.cf").write_text("myhostname = a.example\nqueue_directory =\n")
    assert "queue_directory = : it is empty" in run(etc, "--dry-run", *home, status=2)


def test_the_queue_of_a_whole_copy_lies_in_it(tmp_path: Path, run: Run) -> None:
    etc = copy(tmp_path / "copy/etc/postfix", "myhostname = a.example\n")
    home = ("--home", tmp_path / "home")
    queue = tmp_path / "copy/var/spool/postfix"
    assert f"{queue} is not a directory" in run(etc, "--dry-run", *home, status=2)
    queue.mkdir(parents=True)
    assert f"queue directory: {queue}\n" in run(etc, "--dry-run", *home)
    queue.rmdir()
    queue.symlink_to(tmp_path)
    assert f"/var/spool/postfix leads out of {tmp_path}/copy" in run(etc, "--dry-run", *home, status=2)
    for kind in ("loop", "pipe"):
        queue.unlink()
        unreadable(queue, kind)
        assert f"{queue} is not a directory" in run(etc, "--dry-run", *home, status=2)
    queue.unlink()
    (queue / "pid").mkdir(parents=True)
    unreadable(queue / "pid/master.pid", "pipe")
    assert "0 messages" in run(etc, "--dry-run", *home)


def test_a_queue_without_the_name_of_its_host_is_not_imported(tmp_path: Path, run: Run) -> None:
    etc = copy(tmp_path / "copy")
    queue = ("--queue-directory", tmp_path, "--home", tmp_path / "home")
    for mode in ("--dry-run", "--queue"):
        assert "give it with --hostname NAME" in run(etc, mode, *queue, status=2)
    assert run(etc, "--list-done", *queue) == ""
    assert "0 messages" in run(etc, "--dry-run", "--hostname", "old.example.org", *queue)


# Certificates, and other instances


def test_the_certificate_of_this_host_is_not_taken_for_a_copy(tmp_path: Path, run: Run) -> None:
    pem = certificate(tmp_path, "here", 90)
    etc = copy(
        tmp_path / "copy/etc/postfix", f"myhostname = a.example\nsmtpd_use_tls = yes\nsmtpd_tls_cert_file = {pem}\n"
    )
    assert "tls_certificate" not in run.settings(etc)["receiver"]
    inside = tmp_path / "copy" / pem.relative_to("/")
    inside.parent.mkdir(parents=True)
    pem.rename(inside)
    assert run.settings(etc)["receiver"]["tls_certificate"] == str(inside)
    (tmp_path / "copy/etc/postfix").rename(tmp_path / "alone")
    assert "STARTTLS is not offered until" in run(tmp_path / "alone")


def test_the_other_instances_of_a_copy_are_not_those_of_this_host(tmp_path: Path, run: Run) -> None:
    etc = copy(tmp_path / "copy", "myhostname = a.example\nmulti_instance_directories = /etc/postfix-out\n")
    assert "Copy its directory, too, and run waypost import-postfix on the copy" in run(etc)
