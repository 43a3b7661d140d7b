"""The archive of Java's classes: made once, used while it fits and is whole, and never why there is no report."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from pathlib import Path

import pyspark
import pytest

from appliance.pipeline.class_data import ClassData, bound_to
from appliance.pipeline.java import java_home

ENDS = """
import sys
sys.stdin.read()
if len(sys.argv) > 1:
    open(sys.argv[1], "wb").write(b"classes" * 1000)
"""
USES, MAKES = "-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit="


def java(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", ENDS, *arguments], stdin=subprocess.PIPE)


def option(data: ClassData, home: Path) -> str:
    return next(iter(data.options(home)), "")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.15"')
    return home


@pytest.fixture
def made(tmp_path: Path, home: Path) -> Path:
    """An archive, as a run with ``make`` leaves it."""
    data = ClassData(tmp_path, make=True)
    asked = option(data, home)
    assert asked.startswith(MAKES)
    assert data.ended(java(asked.removeprefix(MAKES)))
    return data.archive


def test_one_is_made_when_wanted_and_then_used_by_all_runs(tmp_path: Path, home: Path) -> None:
    assert option(ClassData(tmp_path), home) == ""
    data = ClassData(tmp_path, make=True)
    assert data.ended(java(option(data, home).removeprefix(MAKES)))
    for make in (False, True):
        again = ClassData(tmp_path, make)
        assert option(again, home) == f"{USES}{data.archive}"
        assert not again.ended(None)


@pytest.mark.parametrize("how", ["bit", "shorter", "gone", "description", "no description"])
def test_a_damaged_one_is_not_used_and_made_anew(tmp_path: Path, home: Path, made: Path, how: str) -> None:
    description = made.with_suffix(".json")
    content = bytearray(made.read_bytes())
    if how == "bit":
        content[3_000] ^= 1
    if how == "gone":
        made.unlink()
    elif how in ("bit", "shorter"):
        made.write_bytes(content[:-1] if how == "shorter" else content)
    elif how == "description":
        description.write_text("[")
    else:
        description.unlink()
    assert option(ClassData(tmp_path), home) == ""
    assert option(ClassData(tmp_path, make=True), home).startswith(MAKES)


def test_one_of_another_java_or_other_jars_is_not_used(
    tmp_path: Path, home: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bound_to(home)
    (home / "release").write_text('JAVA_VERSION="17.0.16", and longer')
    assert bound_to(home) != before
    assert option(ClassData(tmp_path), home) == ""
    assert not made.exists()
    monkeypatch.setattr(pyspark, "__version__", "4.3.1")
    assert bound_to(home) != before


def test_one_with_which_a_run_did_not_end_is_not_used_again(tmp_path: Path, home: Path, made: Path) -> None:
    assert option(ClassData(tmp_path), home) == f"{USES}{made}"  # and Java is killed, or crashes
    assert option(ClassData(tmp_path), home) == ""
    assert option(ClassData(tmp_path, make=True), home).startswith(MAKES)


def test_a_java_that_writes_none_is_not_asked_again(tmp_path: Path, home: Path) -> None:
    data = ClassData(tmp_path, make=True)
    assert option(data, home).startswith(MAKES)
    assert not data.ended(java())
    assert option(ClassData(tmp_path, make=True), home) == ""
    (home / "release").write_text('JAVA_VERSION="21", another')
    assert option(ClassData(tmp_path, make=True), home).startswith(MAKES)


@pytest.mark.parametrize("file", ["classes.json", "classes.in-use"])
def test_a_directory_in_its_place_and_a_full_disk_stop_nothing(tmp_path: Path, home: Path, file: str) -> None:
    (tmp_path / file).mkdir()
    assert option(ClassData(tmp_path), home) == ""


@pytest.mark.long
def test_spark_starts_although_java_cannot_read_the_archive(tmp_path: Path) -> None:
    """It has the right checksum and is bound to the right Java, and is none."""
    count = """
import sys
from pathlib import Path
from appliance.pipeline.class_data import ClassData
from appliance.pipeline.session import QUICK, end, start
classes = ClassData(Path(sys.argv[1]))
spark = start("local[1]", Path(sys.argv[1]), QUICK, classes)
print("counted", spark.range(7).count(), Path(sys.argv[1], "classes.in-use").exists())
end(spark, classes)
"""
    content = b"no archive" * 100_000
    (tmp_path / "classes.jsa").write_bytes(content)
    told = {"bound_to": bound_to(java_home(tmp_path)), "bytes": len(content), "crc32": zlib.crc32(content)}
    (tmp_path / "classes.json").write_text(json.dumps(told))
    said = subprocess.run(
        [sys.executable, "-c", count, tmp_path], check=False, capture_output=True, text=True, timeout=300
    )
    assert "counted 7 True" in said.stdout, said.stderr[-2000:]
    assert not (tmp_path / "classes.in-use").exists()
