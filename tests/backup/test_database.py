"""The portal's database in a backup, when it is PostgreSQL."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mailcore.backup.database import copy_database
from mailcore.cli.main import main
from tests.appliance.core import test_postgresql

postgresql = test_postgresql.postgresql  # a fixture


def psql(url: str, statement: str) -> str:
    return subprocess.run(
        ["psql", "--no-psqlrc", "--tuples-only", "--no-align", "--dbname", url, "--command", statement],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.strip()


def test_a_dump_of_postgresql_comes_back_by_the_command_that_is_shown(
    postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", postgresql)
    (tmp_path / "waypost.toml").write_text('home = "home"\n')
    (tmp_path / "home").mkdir()
    psql(postgresql, "CREATE TABLE t AS SELECT 42 AS n")
    assert main(["backup", "b"]) == 0
    psql(postgresql, "UPDATE t SET n = 7")
    assert main(["restore", "b", "--into", "new"]) == 0
    dump = tmp_path / "new" / "portal" / "portal.pgdump"
    said = " ".join(capsys.readouterr().out.split())
    assert f"pg_restore --clean --if-exists --no-owner --dbname=... {dump}" in said
    subprocess.run(
        ["pg_restore", "--clean", "--if-exists", "--no-owner", f"--dbname={postgresql}", dump], check=True, timeout=60
    )
    assert psql(postgresql, "SELECT n FROM t") == "42"


def test_its_password_is_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pg_dump").write_text(
        '#!/bin/sh\nfor last; do :; done; echo "$@" >"$last"\nenv | grep ^PG | sort >>"$last"\n'
    )
    (programs / "pg_dump").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    url = "postgresql://portal:a%40secret@db.example.org:5433/waypost?sslmode=require"
    dump = copy_database(url, tmp_path, tmp_path)
    assert dump is not None
    arguments, *environment = dump.read_text().splitlines()
    assert "secret" not in arguments
    assert {
        "PGPASSWORD=a@secret",
        "PGHOST=db.example.org",
        "PGPORT=5433",
        "PGUSER=portal",
        "PGDATABASE=waypost",
    } <= set(environment)
