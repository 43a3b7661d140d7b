"""Back into an empty home: everything in its place, nothing overwritten, nothing half."""

from __future__ import annotations

import os
import pwd
import secrets
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mailcore.backup.archive import Head
from mailcore.backup.places import remove
from mailcore.backup.writer import Writer
from mailcore.cli.main import main
from mailcore.cli.restore import moved_home
from mailcore.config.known_shards import Others, OtherShard, write_others
from mailcore.config.load import load
from mailcore.log.disk import Disk
from mailcore.log.positions import RestartPositions, write_positions
from mailcore.queue.exported import EXPORTED, ExportedLane, ExportedPositions, write_exported
from mailcore.queue.identity import establish, lock_directory, look
from mailcore.queue.versions import RESTORING, NotOurs, look_at_versions
from tests.config.test_load import certificate

CONFIG = """# ours
home = "home"
spool_directory = "elsewhere"

[receiver]
listen = ["127.0.0.1:2525"]
tls_certificate = "certificate.pem"
tls_key = "key.pem"
"""
NODES = """[nodes]
database = "host=db1.example.org,db2.example.org dbname=waypost user=waypost"
node = "mx1"
listen = "127.0.0.1:2526"
"""
PAIR = [part.decode() for part in certificate("mx1.example.org")[:2]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home that has something of everything but a queue."""
    for name in ("DATABASE_URL", "WAYPOST_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home" / "portal").mkdir(parents=True)
    files = {"waypost.toml": CONFIG, "certificate.pem": PAIR[0], "key.pem": PAIR[1]}
    files |= {"home/tuned.toml": "[smtp]\nprocess_limit = 7\n", "home/portal/secret.key": "a secret"}
    files |= {"home/managed.toml": "[relay]\ndomains = ['mine.example']\n", "home/managed-history.jsonl": "{}\n"}
    (tmp_path / "home" / "kept" / "key").mkdir(parents=True)
    files |= {"home/kept/key/mx.0123456789abcdef": "a private key"}
    files |= {"home/users.jsonl": '{"format":1,"salt_key":"x"}\n'}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "home/kept/key/mx.0123456789abcdef").chmod(0o640)
    (tmp_path / "home/kept/key").chmod(0o750)
    database = sqlite3.connect(tmp_path / "home" / "portal" / "portal.sqlite3")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE t (n INTEGER)")
    database.execute("INSERT INTO t VALUES (42)")
    database.commit()  # and it stays open, with its WAL, as under a portal that runs
    events = tmp_path / "home" / "events"
    for name in ("incoming.0.0", "incoming.0.5000", "journal.0", "windows.99"):
        (events / "dt=2026-11-21").mkdir(parents=True, exist_ok=True)
        (events / "dt=2026-11-21" / f"{name}.parquet").write_text(name)
    (events / EXPORTED).mkdir()
    lanes = {"incoming.0": ExportedLane(5000), "journal": ExportedLane(9000)}
    write_exported(Disk(), str(events / EXPORTED), ExportedPositions(lanes))
    version = tmp_path / "home" / "reports" / "versions" / "gold.day=2026-11-20.7-7"
    version.mkdir(parents=True)
    (version / "report.json").write_text("{}")
    (version / ".crc").write_text("x")
    (tmp_path / "home" / "reports" / "gold").mkdir()
    (tmp_path / "home" / "reports" / "gold" / "day=2026-11-20").symlink_to(f"../versions/{version.name}")
    yield tmp_path
    database.close()


def run(*words: str | Path) -> int:
    return main([str(word) for word in words])


def backed_up(place: Path, *options: str) -> Path:
    assert run("backup", place / "b", *options) == 0
    return place / "b"


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def test_a_database_that_is_not_there_is_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("backup", place / "a") == 0
    assert "note" not in capsys.readouterr().out
    for path in (place / "home" / "portal").glob("portal.sqlite3*"):
        path.unlink()
    assert run("backup", place / "b") == 0
    assert "no database of a portal: there is no" in " ".join(capsys.readouterr().out.split())


def test_everything_comes_back_into_another_home(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup = backed_up(place, "--reports")
    assert run("backup", "--verify", backup) == 0
    assert run("restore", backup, "--into", place / "new") == 0
    new = place / "new"
    settings = load(new / "waypost.toml")
    assert (settings.home, settings.spool_directory) == (new, new / "spool")
    assert (new / "tuned.toml").read_text() == "[smtp]\nprocess_limit = 7\n"
    assert (new / "managed.toml").read_text() == "[relay]\ndomains = ['mine.example']\n"
    assert (new / "managed-history.jsonl").read_text() == "{}\n"
    assert (new / "kept/key/mx.0123456789abcdef").read_text() == "a private key"
    assert (new / "kept/key/mx.0123456789abcdef").stat().st_mode & 0o777 == 0o640
    assert (new / "kept/key").stat().st_mode & 0o777 == 0o750
    assert (new / "users.jsonl").read_text() == '{"format":1,"salt_key":"x"}\n'
    assert (new / "portal" / "secret.key").read_text() == "a secret"
    assert (new / "portal" / "secret.key").stat().st_mode & 0o777 == 0o600
    assert (new / "key.pem").read_text() == PAIR[1]
    with sqlite3.connect(new / "portal" / "portal.sqlite3") as database:
        assert database.execute("SELECT n FROM t").fetchone() == (42,)
    found = {path for path in everything_below(new / "events") if path.endswith(".parquet")}
    # What lies behind the exported positions is exported anew.
    assert found == {f"dt=2026-11-21/{name}.parquet" for name in ("incoming.0.0", "journal.0", "windows.99")}
    assert (new / "reports" / "gold" / "day=2026-11-20" / "report.json").read_text() == "{}"
    assert not (new / RESTORING).exists()
    assert not [name for name in os.listdir(new) if "restoring" in name]


def test_a_new_queue_beside_old_events_begins_behind_them(place: Path) -> None:
    """Else new events would have the names of old ones, and count as exported."""
    assert run("restore", backed_up(place, "--reports"), "--into", place / "new") == 0
    assert [path.name for path in (place / "new" / "queue" / "incoming.0").glob("*.seg")] == [f"{5000:020}.seg"]
    # What a start makes of it is in test_homes.


def test_a_home_that_is_not_empty_is_refused_and_left_as_it_is(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup = backed_up(place)
    (place / "home" / "tuned.toml").write_text("# newer\n")
    before = everything_below(place)
    assert run("restore", backup) == 1
    assert "tuned.toml" in capsys.readouterr().err
    assert everything_below(place) == before
    assert (place / "home" / "tuned.toml").read_text() == "# newer\n"
    assert run("restore", backup, "--move-aside") == 0
    assert (place / "home" / "tuned.toml").read_text() == "[smtp]\nprocess_limit = 7\n"
    (aside,) = (place / "home").glob("tuned.toml.before-*")
    assert aside.read_text() == "# newer\n"
    # The WAL of the old database must not be played into the new one.
    assert not list((place / "home" / "portal").glob("portal.sqlite3-*"))
    with sqlite3.connect(place / "home" / "portal" / "portal.sqlite3") as database:
        assert database.execute("SELECT n FROM t").fetchone() == (42,)
    assert (place / "waypost.toml").read_text() == CONFIG
    assert (place / "waypost.toml.restored").read_text() == CONFIG


def test_directories_without_a_file_in_them_are_in_nobodys_way(place: Path) -> None:
    (place / "new" / "events" / "dt=2026-11-22" / "deeper").mkdir(parents=True)
    assert run("restore", backed_up(place, "--reports"), "--into", place / "new") == 0
    assert (place / "new" / "events" / "dt=2026-11-21").exists()
    assert not (place / "new" / "events" / "dt=2026-11-22").exists()


def test_a_damaged_backup_changes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup = backed_up(place)
    whole = backup.read_bytes()
    backup.write_bytes(whole[:-40])
    assert run("backup", "--verify", backup) == 1
    assert run("restore", backup, "--into", place / "new") == 1
    assert "damaged" in capsys.readouterr().err
    assert everything_below(place / "new") == set()


def test_a_home_somebody_runs_on_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup = backed_up(place)
    lock = Disk().lock(str(place / "home" / "lock"))
    try:
        assert run("restore", backup, "--move-aside") == 1
    finally:
        os.close(lock)
    assert "stop it first" in capsys.readouterr().err


def test_killed_while_it_renames_no_core_starts_there_until_it_is_done_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = backed_up(place)
    renamed: list[str] = []
    rename = os.rename

    def killed(old: Path, new: Path) -> None:
        if len(renamed) == 2:
            raise KeyboardInterrupt
        renamed.append(str(new))
        rename(old, new)

    monkeypatch.setattr(os, "rename", killed)
    assert run("restore", backup, "--into", place / "new") == 130
    monkeypatch.setattr(os, "rename", rename)
    new = place / "new"
    with pytest.raises(NotOurs, match="is incomplete"):
        look_at_versions(Disk(), str(new), str(new / "queue"), str(new / "events" / EXPORTED))
    assert run("restore", backup, "--into", new, "--move-aside") == 0
    look_at_versions(Disk(), str(new), str(new / "queue"), str(new / "events" / EXPORTED))


def test_the_secret_of_the_environment_is_kept_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYPOST_SECRET_KEY", "of the environment")
    backup = backed_up(place)
    assert run("restore", backup, "--into", place / "new") == 0
    assert (place / "new" / "portal" / "secret.key").read_text() == "of the environment"


def test_a_backup_takes_no_name_that_is_taken_and_none_is_left_when_it_fails(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = backed_up(place)
    assert run("backup", backup) == 2
    before = everything_below(place)
    assert run("backup", place / "c", "--queue") == 1
    assert "there is no queue" in capsys.readouterr().err
    monkeypatch.setenv("DATABASE_URL", "mysql://portal@localhost/portal")
    assert run("backup", place / "c") == 1
    assert "mysql" in capsys.readouterr().err
    assert everything_below(place) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("options", [[], ["--reports"], ["--reports", "--queue"]], ids=str)
def test_what_root_restores_belongs_to_whom_it_belonged_to(place: Path, options: list[str]) -> None:
    """Or the user that Waypost runs as could not start on it."""
    if "--queue" in options:
        queue = place / "home" / "queue"
        for lane in ("journal", "incoming.0"):
            (queue / lane).mkdir(parents=True)
        write_positions(Disk(), str(queue), RestartPositions(1, 2.0, {}, 0, 0))
        (place / "elsewhere" / "00").mkdir(parents=True)
    user = pwd.getpwnam("nobody")
    for path in [place / "home", *(place / "home").rglob("*"), *place.glob("elsewhere/**/*"), place / "elsewhere"]:
        if path.exists():
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    assert run("restore", backed_up(place, *options), "--into", place / "new") == 0
    ours = {place / "new" / name for name in ("waypost.toml", "key.pem", "certificate.pem")}
    for path in [place / "new", *(place / "new").rglob("*")]:
        if path not in ours and not path.is_symlink():
            assert path.stat().st_uid == user.pw_uid, path
    assert not (place / "new" / "lock").exists()


def with_a_queue(place: Path) -> None:
    (place / "home" / "queue" / "journal").mkdir(parents=True)
    write_positions(Disk(), str(place / "home" / "queue"), RestartPositions(1, 2.0, {}, 0, 0))
    (place / "elsewhere" / "0a").mkdir(parents=True)
    (place / "elsewhere" / "0a" / "A").write_text("of the backup")


def test_a_backup_of_one_of_several_nodes_says_that_the_mail_of_others_is_not_in_it(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_a_queue(place)
    assert run("backup", place / "alone", "--queue") == 0
    assert "nodes" not in capsys.readouterr().out
    (place / "waypost.toml").write_text(f"{CONFIG}\n{NODES}")
    assert run("backup", place / "settings") == 0
    assert "other shards" not in capsys.readouterr().out
    assert run("backup", place / "queue", "--queue") == 0
    assert "mail of other shards is not in this backup" in " ".join(capsys.readouterr().out.split())


def test_a_backup_says_when_another_node_has_the_shard_of_this_home(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_a_queue(place)
    (place / "waypost.toml").write_text(f"{CONFIG}\n{NODES}")
    (place / "home" / "run").mkdir(exist_ok=True)
    words = "node mx2 has this home's own shard now"
    for number, (node, told) in enumerate((("mx1", False), ("mx2", True))):
        rows = [OtherShard(4, "mx1", node), OtherShard(5, "mx2", "mx2")]
        write_others(place / "home" / "run", Others("mx1", 4, rows))
        assert run("backup", place / f"{number}", "--queue") == 0
        assert (words in " ".join(capsys.readouterr().out.split())) == told
    assert run("backup", place / "settings") == 0
    assert words not in " ".join(capsys.readouterr().out.split())


def test_a_queue_that_comes_back_where_a_database_keeps_queues_is_not_said_to_start(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a start is refused, as ForeignQueue says."""
    with_a_queue(place)
    (place / "waypost.toml").write_text(f"{CONFIG}\n{NODES}")
    backup = backed_up(place, "--queue")
    capsys.readouterr()
    assert run("restore", backup, "--into", place / "new") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Waypost starts with" not in said
    assert "Waypost does not start with this queue, because [nodes] is on: " in said
    assert "waypost shard import" in said
    assert "waypost node join" in said
    assert run("restore", backup, "--into", place / "other", "--without-queue") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "shard import" not in said
    assert "waypost node join" in said
    reports = place / "reports.tar.zst"
    assert run("backup", reports, "--reports") == 0
    assert run("restore", reports, "--into", place / "third") == 0
    assert not list(place.glob("third/queue/*/*")), "a start would be refused for them, too"


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[None]:
    """The queue and the spool on disks of their own, in a home that the backup does not come from."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    places = [tmp_path / "new" / "queue", tmp_path / "new" / "spool"]
    for each in places:
        each.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(each)], check=True)
        (each / "lost+found").mkdir()
    yield
    for each in places:
        subprocess.run(["umount", str(each)], check=True)


@pytest.mark.usefixtures("disks")
def test_queue_and_spool_may_be_disks_of_their_own(place: Path) -> None:
    with_a_queue(place)
    backup, new = backed_up(place, "--queue"), place / "new"
    assert run("restore", backup, "--into", new) == 0
    for each in (new / "queue", new / "spool"):
        assert each.is_mount()
        assert (each / "lost+found").is_dir()
    assert (new / "spool" / "0a" / "A").read_text() == "of the backup"
    look_at_versions(Disk(), str(new), str(new / "queue"), str(new / "events" / EXPORTED))
    (new / "spool" / "0a" / "A").write_text("of the time since")
    assert run("restore", backup, "--into", new) == 1
    assert run("restore", backup, "--into", new, "--move-aside") == 0
    assert (new / "spool" / "0a" / "A").read_text() == "of the backup"
    (aside,) = (new / "spool").glob(".before-*")
    assert (aside / "0a" / "A").read_text() == "of the time since"
    assert not [path for path in new.rglob("*") if "restoring" in path.name]


@pytest.mark.usefixtures("disks")
def test_killed_while_it_fills_a_disk_it_is_done_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_a_queue(place)
    backup, new = backed_up(place, "--queue"), place / "new"
    rename = os.rename

    def killed(old: Path, new: Path) -> None:
        if new.name == "0a":
            raise KeyboardInterrupt
        rename(old, new)

    monkeypatch.setattr(os, "rename", killed)
    assert run("restore", backup, "--into", new) == 130
    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(NotOurs, match="is incomplete"):
        look_at_versions(Disk(), str(new), str(new / "queue"), str(new / "events" / EXPORTED))
    assert run("restore", backup, "--into", new, "--move-aside") == 0
    assert (new / "spool" / "0a" / "A").read_text() == "of the backup"
    look_at_versions(Disk(), str(new), str(new / "queue"), str(new / "events" / EXPORTED))
    assert not [path for path in new.rglob("*") if "restoring" in path.name]


def test_a_link_to_where_the_spool_lies_stays_one(place: Path) -> None:
    with_a_queue(place)
    backup = backed_up(place, "--queue")
    (place / "new").mkdir()
    (place / "disk").mkdir()
    (place / "new" / "spool").symlink_to(place / "disk")
    assert run("restore", backup, "--into", place / "new") == 0
    assert (place / "new" / "spool").is_symlink()
    assert (place / "disk" / "0a" / "A").read_text() == "of the backup"


@pytest.mark.parametrize("links", [b"[]", b"{", b'{"../x": "../a/b"}', b'{"a/..": "../a/b"}', b'{"a/b": "../../x"}'])
def test_no_link_of_a_backup_leads_out_of_the_reports(
    place: Path, links: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = Writer(place / "b", Head("0.1.0", 1.0, "mx1.example.org", ("configuration", "reports")))
    writer.add_bytes("config/waypost.toml", b"")
    writer.add_bytes("reports.json", links)
    writer.finish({})
    assert run("restore", place / "b", "--into", place / "new") == 1
    assert "nothing was restored: reports.json" in capsys.readouterr().err
    assert everything_below(place / "new") == set()


def test_certificates_by_name_come_back(place: Path) -> None:
    """Two sections share their files with each other, and one with [receiver]."""
    sections = "".join(
        f'[[certificate]]\nnames = ["{name}.example"]\ncertificate = "{file}"\nkey = "{key}"\n'
        for name, file, key in (("a", "a.pem", "a.key"), ("b", "a.pem", "a.key"), ("c", "certificate.pem", "key.pem"))
    )
    text = '[receiver]\ntls_certificate = "certificate.pem"\ntls_key = "key.pem"\n'
    (place / "waypost.toml").write_text(f'home = "home"\n{text}{sections}')
    (place / "a.pem").write_text(PAIR[0])
    (place / "a.key").write_text(PAIR[1])
    assert run("restore", backed_up(place), "--into", place / "new") == 0
    assert (place / "new" / "a.pem").read_text() == PAIR[0]
    assert (place / "new" / "a.key").read_text() == PAIR[1]
    assert (place / "new" / "key.pem").read_text() == PAIR[1]


@pytest.mark.parametrize("told", ["younger", "ends", "taken"])
def test_what_a_backup_says_of_its_queue_is_said_of_lanes(
    place: Path, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = Writer(place / "b", Head("0.1.0", 1.0, "mx1.example.org", ("configuration", "queue")))
    writer.add_bytes("config/waypost.toml", b"")
    empty: dict[str, object] = {"positions": None, "ends": {}, "taken": {}, "younger": {}}
    writer.finish(empty | {told: {"../../home": [0] if told == "younger" else 0}})
    assert run("restore", place / "b", "--into", place / "new") == 1
    assert "'../../home' is not a lane" in capsys.readouterr().err
    assert everything_below(place / "new") == set()


@pytest.mark.parametrize(
    "receiver",
    [
        'receiver.tls_certificate = "tls/c.pem"\nreceiver.tls_key = "tls/k.pem"\n',
        '[receiver]\n"tls_certificate" = "tls/c.pem"\n"tls_key" = "tls/k.pem"\n',
        'receiver = {tls_certificate = "tls/c.pem", tls_key = "tls/k.pem"}\n',
    ],
)
def test_a_certificate_comes_back_however_the_file_names_it(place: Path, receiver: str) -> None:
    (place / "waypost.toml").write_text(f'"home" = "home"\n{receiver}')
    (place / "tls").mkdir()
    (place / "certificate.pem").rename(place / "tls" / "c.pem")
    (place / "key.pem").rename(place / "tls" / "k.pem")
    (place / "tls" / "k.pem").chmod(0o640)
    assert run("restore", backed_up(place), "--into", place / "new") == 0
    assert load(place / "new" / "waypost.toml").home == place / "new"
    assert (place / "new" / "tls" / "k.pem").read_text() == PAIR[1]
    for each in ("waypost.toml", "tls", "home"):
        remove(place / each)
    assert run("restore", place / "b", "--config", place / "waypost.toml") == 0
    # The receiver, which has its own user, must come by.
    modes = [path.stat().st_mode & 0o777 for path in (place / "tls", place / "tls" / "c.pem", place / "tls" / "k.pem")]
    assert modes == [0o755, 0o644, 0o640]


def test_no_backup_is_made_where_there_is_no_directory(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("nowhere/", "nowhere/b"):
        assert run("backup", f"{place}/{name}") == 2
        assert "no such directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", ()),
        ("home = 'x'\n", ()),
        ("# a\n  home='x'\nrun_directory = 'y'\n[queue]\nsegment_bytes = 65536\n", ("# a", "segment_bytes = 65536")),
        ("[queue]\nsegment_bytes = 65536\n", ("[queue]",)),
        ("routes.a = 'b'\n\n[queue]\n# home = 'x'\n", ("routes.a = 'b'", "# home = 'x'")),
    ],
)
def test_another_home_in_a_configuration_file(tmp_path: Path, text: str, lines: Sequence[str]) -> None:
    moved = moved_home(text, tmp_path / 'a "home"')
    assert moved.count("home = ") - moved.count("# home = ") == 1
    assert set(lines) <= set(moved.splitlines())
    if "routes" not in text:
        (tmp_path / "waypost.toml").write_text(moved)
        assert load(tmp_path / "waypost.toml").home == tmp_path / 'a "home"'


def directories_of(home: Path) -> dict[str, str]:
    """As the configuration of ``place`` has them, and that of a home restored from it."""
    spool = home.parent / "elsewhere" if home.name == "home" else home / "spool"
    below = {"home": home, "queue": home / "queue", "spool": spool, "events": home / "events"}
    return {name: str(path) for name, path in below.items()}


def identities(home: Path) -> dict[str, str]:
    """Directory -> identity; each must be that of the home."""
    looks = look(Disk(), directories_of(home))
    assert [each.why_not for each in looks] == [""] * len(looks)
    return {each.name: each.identity.identity for each in looks if each.identity is not None}


def start(home: Path) -> None:
    """What a start of the core does before it starts a process; there was a queue before."""
    segment = home / "queue" / "incoming.0" / f"{0:020}.seg"
    segment.parent.mkdir(parents=True, exist_ok=True)
    segment.touch()
    held = establish(
        Disk(), directories_of(home), str(home / "log"), str(home / "reports"), 1.0, lambda: secrets.token_hex(16)
    )
    for lock in held.locks:
        os.close(lock)


NAMES = ("home", "queue", "spool", "events")


def test_what_is_restored_has_an_identity_of_its_own(place: Path) -> None:
    """The original may still run, with disks that must not be taken for the copy's."""
    start(place / "home")
    original = set(identities(place / "home").values())
    backup = backed_up(place, "--reports", "--queue")
    assert run("restore", backup, "--into", place / "new") == 0
    found = identities(place / "new")
    assert set(found) == set(NAMES)
    assert len(set(found.values())) == 1
    assert original.isdisjoint(found.values())
    start(place / "new")
    assert run("restore", backup, "--move-aside") == 0
    again = identities(place / "home")
    assert len(set(again.values())) == 1
    assert original.isdisjoint(again.values())
    start(place / "home")


def test_a_restore_without_the_events_takes_those_that_stay_into_the_new_identity(place: Path) -> None:
    start(place / "home")
    assert run("restore", backed_up(place, "--queue"), "--move-aside") == 0
    assert set(identities(place / "home")) == set(NAMES)
    start(place / "home")


def test_a_restore_does_not_move_the_disk_of_another_waypost_aside(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(place / "home")
    backup = backed_up(place, "--queue")
    start(place / "other")
    (place / "elsewhere").rename(place / "away")
    (place / "elsewhere").symlink_to(place / "other" / "spool")
    before = everything_below(place)
    assert run("restore", backup, "--move-aside") == 1
    assert "belongs to another Waypost" in capsys.readouterr().err
    assert everything_below(place) == before
    assert run("backup", place / "c", "--queue") == 1
    assert "belongs to another Waypost" in capsys.readouterr().err


def test_a_restore_waits_for_no_waypost_that_uses_a_directory(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(place / "home")
    backup = backed_up(place, "--queue")
    lock = lock_directory(Disk(), "spool", str(place / "elsewhere"))
    try:
        assert run("restore", backup, "--move-aside") == 1
        assert "another Waypost is using the spool directory" in capsys.readouterr().err
    finally:
        os.close(lock)


def test_mail_in_the_spool_goes_aside_with_its_queue(place: Path) -> None:
    """The new queue would name none of it, and the sweep delete it."""
    start(place / "home")
    mail = place / "elsewhere" / "00" / "Q1"
    mail.parent.mkdir()
    mail.write_text("mail")
    assert run("restore", backed_up(place, "--reports"), "--move-aside") == 0
    assert not mail.exists()
    assert [path.read_text() for path in place.glob("elsewhere.before-*/00/Q1")] == ["mail"]
