"""The portal's database in a backup, when it is PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from mailcore.backup.database import copy_database
from mailcore.cli.main import main
from mailcore.log.disk import Disk
from mailcore.queue.exported import EXPORTED
from mailcore.queue.versions import RESTORING, NotOurs, look_at_versions
from tests.appliance.common import test_postgresql
from tests.test_tidy import ROOT

postgresql = test_postgresql.postgresql  # a fixture


def psql(url: str, statement: str) -> str:
    return subprocess.run(
        ["psql", "--no-psqlrc", "--tuples-only", "--no-align", "--dbname", url, "--command", statement],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.strip()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration and a home without anything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    (tmp_path / "waypost.toml").write_text('home = "home"\n')
    (tmp_path / "home").mkdir()
    return tmp_path


def restored(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(["restore", "b", "--into", "new", *words]) == status
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def another(url: str, name: str) -> str:
    """An empty database beside it."""
    psql(url, f"CREATE DATABASE {name} TEMPLATE template0")
    return another_name(url, name)


def another_name(url: str, name: str) -> str:
    return url.replace("/postgres?", f"/{name}?")


def name_database(place: Path, url: str) -> None:
    (place / "waypost.toml").write_text(f'home = "home"\n[portal]\ndatabase_url = "{url}"\n')


# A restore that is killed before anything has got its name.
DYING = """
import os, signal, sys
from mailcore.backup import restore
from mailcore.cli import main
restore.Restore._put_into_place = lambda self: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main.main(sys.argv[1:]))
"""
USERS = """
from django.contrib.auth.models import User
from django.core.management import call_command
call_command("migrate", verbosity=0, {migrate})
User.objects.create_user("{name}")
print("users:", *User.objects.order_by("username"))
"""
FILL = (
    "CREATE TABLE t (n INTEGER PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 1000); CREATE SEQUENCE s START 42"
)


def test_a_dump_of_postgresql_comes_back_into_the_empty_one_that_the_settings_name(
    postgresql: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name_database(place, postgresql)
    psql(postgresql, FILL)
    assert main(["backup", "b"]) == 0
    psql(postgresql, "DELETE FROM t")
    new = another(postgresql, "anew")
    monkeypatch.setenv("DATABASE_URL", new)  # it goes before the settings, as with the portal
    assert "the portal's database, anew on" in restored(capsys)
    assert psql(new, "SELECT count(*), sum(n) FROM t") == "1000|500500"
    assert psql(new, "SELECT nextval('s')") == "42"
    assert psql(postgresql, "SELECT count(*) FROM t") == "0"
    assert not list((place / "new").rglob("*pgdump*")), "what is in it is in the database"
    assert not (place / "new" / RESTORING).exists()


def test_a_portal_lives_on_in_the_database_that_a_restore_has_filled(
    postgresql: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All its tables, those of its libraries too, by a role that may do nothing but what it owns; new rows get new numbers."""
    psql(postgresql, "CREATE ROLE portal LOGIN")
    urls = [another(postgresql, name).replace("waypost@", "portal@") for name in ("old", "anew")]
    for name in ("old", "anew"):
        psql(postgresql, f"ALTER DATABASE {name} OWNER TO portal")

    def portal(url: str, name: str, migrate: str) -> str:
        """Who is a user, when somebody was made one."""
        environment = os.environ | {"DATABASE_URL": url, "WAYPOST_CONFIG": str(place / "waypost.toml")}
        environment["DJANGO_SETTINGS_MODULE"] = "tests.appliance.production"
        command = [sys.executable, str(ROOT / "manage.py"), "shell", "-c", USERS.format(name=name, migrate=migrate)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    old, new = urls
    assert "users: ina\n" in portal(old, "ina", "interactive=False")
    monkeypatch.setenv("DATABASE_URL", old)
    assert main(["backup", "b"]) == 0
    monkeypatch.setenv("DATABASE_URL", new)
    restored(capsys)
    assert "users: ina tom\n" in portal(new, "tom", "check_unapplied=True")


def test_a_database_that_is_not_empty_is_not_filled_whatever_is_asked_for(
    postgresql: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name_database(place, postgresql)
    psql(postgresql, FILL)
    assert main(["backup", "b"]) == 0
    psql(postgresql, "UPDATE t SET n = -n")
    for options in ([], ["--move-aside"]):
        said = restored(capsys, *options, status=1)
        assert "nothing was restored: the portal's database, postgres on " in said
        assert "is not empty" in said
        assert "dropdb and createdb" in said
    assert psql(postgresql, "SELECT max(n) FROM t") == "-1"
    assert [path for path in (place / "new").rglob("*") if path.is_file()] == []


def test_a_dump_that_can_not_be_brought_back_leaves_database_and_home_as_they_were(
    postgresql: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has what only a superuser may make, behind tables that anybody may."""
    name_database(place, postgresql)
    psql(postgresql, FILL)
    psql(postgresql, "CREATE FUNCTION f() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'")
    psql(postgresql, "CREATE EVENT TRIGGER e ON sql_drop EXECUTE FUNCTION f()")
    assert main(["backup", "b"]) == 0
    psql(postgresql, "CREATE ROLE weak LOGIN")
    new = another(postgresql, "anew")
    psql(postgresql, "ALTER DATABASE anew OWNER TO weak")
    monkeypatch.setenv("DATABASE_URL", new.replace("waypost@", "weak@"))
    assert "nothing was restored: pg_restore of the portal's database, anew on " in restored(capsys, status=1)
    assert psql(new, "SELECT count(*) FROM pg_class WHERE relname = 't'") == "0"
    assert [path for path in (place / "new").rglob("*") if path.is_file()] == []
    monkeypatch.setenv("DATABASE_URL", new)
    restored(capsys)  # and nothing is in the way of the next one
    assert psql(new, "SELECT count(*) FROM t") == "1000"


def test_killed_when_the_database_is_filled_no_core_starts_there(
    postgresql: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is done again, with the database made anew."""
    name_database(place, postgresql)
    psql(postgresql, FILL)
    assert main(["backup", "b"]) == 0
    new = another(postgresql, "anew")
    monkeypatch.setenv("DATABASE_URL", new)
    done = subprocess.run(
        [sys.executable, "-c", DYING, "restore", "b", "--into", "new"], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    home = place / "new"
    with pytest.raises(NotOurs, match="is incomplete"):
        look_at_versions(Disk(), str(home), str(home / "queue"), str(home / "events" / EXPORTED))
    assert "is not empty" in restored(capsys, status=1)
    assert (home / RESTORING).exists()
    psql(postgresql, "DROP DATABASE anew")
    another(postgresql, "anew")
    restored(capsys)
    assert psql(new, "SELECT count(*) FROM t") == "1000"
    look_at_versions(Disk(), str(home), str(home / "queue"), str(home / "events" / EXPORTED))


def test_where_no_database_is_to_be_filled_the_command_that_does_is_shown(
    postgresql: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgresql)
    psql(postgresql, FILL)
    assert main(["backup", "b"]) == 0
    dump = place / "new" / "portal" / "portal.pgdump"
    assert f"pg_restore --single-transaction --no-owner --dbname=... {dump}" in restored(capsys, "--dump-only")
    shutil.rmtree(place / "new")
    monkeypatch.delenv("DATABASE_URL")
    assert "the settings here name none" in restored(capsys)
    new = another(postgresql, "anew")
    command = ["pg_restore", "--single-transaction", "--no-owner", f"--dbname={new}", str(dump)]
    subprocess.run(command, check=True, timeout=60)
    assert psql(new, "SELECT count(*) FROM t") == "1000"


def test_on_a_server_it_is_the_database_of_the_service_that_is_meant(
    postgresql: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever types the command has not what its service has in its environment."""
    psql(postgresql, FILL)
    (place / "portal.env").write_text(f"# secrets\nREDIS_URL='a b'\nDATABASE_URL='{postgresql}'\n")
    assert main(["backup", "b"]) == 0
    (place / "waypost.toml").rename(place / "old.toml")
    (place / "portal.env").write_text(f"DATABASE_URL={another(postgresql, 'anew')}\n")
    capsys.readouterr()
    assert main(["restore", "b"]) == 0
    assert psql(another_name(postgresql, "anew"), "SELECT count(*) FROM t") == "1000"
    (place / "portal.env").write_bytes(b"DATABASE_URL=\xff\n")
    assert main(["backup", "c"]) == 1
    assert "portal.env says which database the portal has, and can't be read" in capsys.readouterr().err
    assert not (place / "c").exists()


def test_what_is_missing_or_does_not_answer_is_said_and_nothing_changed(
    postgresql: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgresql)
    assert main(["backup", "b"]) == 0
    monkeypatch.setenv("DATABASE_URL", postgresql.replace("/postgres?", "/nowhere?"))
    assert 'database "nowhere" does not exist' in restored(capsys, status=1)
    monkeypatch.setenv("DATABASE_URL", postgresql)
    monkeypatch.setenv("PATH", str(place))
    assert "there is no pg_restore; install postgresql-client" in restored(capsys, status=1)
    assert [path for path in (place / "new").rglob("*") if path.is_file()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_root_backs_up_and_restores_where_the_socket_asks_who_one_is(
    postgresql: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a server: nobody but the portal's own user is let in, and that user can read neither home nor backup."""
    place.chmod(0o700)
    for name in ("old", "anew"):
        psql(postgresql, f"CREATE DATABASE {name} TEMPLATE template0")
    psql(postgresql, "CREATE ROLE nobody LOGIN")
    for name in ("old", "anew"):
        psql(postgresql, f"ALTER DATABASE {name} OWNER TO nobody")
    directory = Path(postgresql.partition("host=")[2])
    directory.chmod(0o755)
    (directory / "data" / "pg_hba.conf").write_text("local all nobody peer\nlocal all all trust\n")
    psql(postgresql, "SELECT pg_reload_conf()")
    old, new = (f"postgresql://nobody@{quote(str(directory), safe='')}/{name}" for name in ("old", "anew"))
    psql(another_name(postgresql, "old"), FILL)
    psql(another_name(postgresql, "old"), "ALTER TABLE t OWNER TO nobody; ALTER SEQUENCE s OWNER TO nobody")
    monkeypatch.setenv("DATABASE_URL", old)
    assert main(["backup", "b"]) == 0
    monkeypatch.setenv("DATABASE_URL", new)
    restored(capsys)
    asked = another_name(postgresql, "anew")
    assert psql(asked, "SELECT count(*), sum(n) FROM t") == "1000|500500"
    assert psql(asked, "SELECT tableowner FROM pg_tables WHERE tablename = 't'") == "nobody"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], list[str]]]:
    """What a pg_dump is told: a line of arguments, who it runs as, its PG variables. In a place that everybody may enter."""
    place = Path(tempfile.mkdtemp(prefix="wp-"))
    place.chmod(0o755)
    (place / "pg_dump").write_text('#!/bin/sh\necho "$@"\nid -un\nenv | grep ^PG | sort\n')
    (place / "pg_dump").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")

    def ask(url: str) -> list[str]:
        into = Path(tempfile.mkdtemp(dir=place))
        dump = copy_database(url, place, into)
        assert dump is not None
        return dump.read_text().splitlines()

    yield ask
    shutil.rmtree(place)


def test_its_password_is_on_no_command_line(told: Callable[[str], list[str]]) -> None:
    arguments, _, *environment = told("postgresql://portal:a%40secret@db.example.org:5433/waypost?sslmode=require")
    assert "secret" not in arguments
    assert {
        "PGPASSWORD=a@secret",
        "PGHOST=db.example.org",
        "PGPORT=5433",
        "PGUSER=portal",
        "PGDATABASE=waypost",
    } <= set(environment)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize(
    ("url", "user"),
    [
        ("postgresql://nobody@%2Frun%2Fpostgresql/waypost", "nobody"),
        ("postgresql://nobody@/waypost?host=/run/postgresql", "nobody"),
        ("postgresql://nobody:secret@%2Frun%2Fpostgresql/waypost", "root"),
        ("postgresql://nobody@db.example.org/waypost", "root"),
        ("postgresql://no-such-user@%2Frun%2Fpostgresql/waypost", "root"),
    ],
)
def test_root_asks_as_who_signs_in_where_a_socket_goes_by_that(
    told: Callable[[str], list[str]], url: str, user: str
) -> None:
    assert told(url)[1] == user


def test_the_database_of_the_nodes_is_in_no_backup_and_the_backup_says_so(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node that is restored must not bring back what all nodes had then."""
    name_database(place, "nodes")
    with (place / "waypost.toml").open("a") as config:
        config.write('[nodes]\ndatabase = "host=db1.example.org dbname=waypost"\n')
    assert main(["backup", "b"]) == 0
    captured = capsys.readouterr()
    assert "the portal's data is in the database of [nodes], and not in this backup" in captured.out + captured.err
