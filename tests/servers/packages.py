"""The Debian packages and the image of this checkout, built when they are missing or older than what they are made of."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.servers.machine import run
from tests.test_tidy import ROOT

__all__ = ["APT", "image", "package"]

APT = "DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0"
TAGS = {"3.11": "deb12", "3.13": "deb13"}
BUILD_S = 1800.0
SOURCES = (
    "mailcore", "appliance", "templates", "static", "share", "release", "ansible/roles",
    "pyproject.toml", "requirements.lock", "make-release",
)  # fmt: skip


def package(version: str, python: str, name: str = "waypost") -> Path:
    """Returns the package of that version for that Python. One of an older checkout would test what is not there any more."""
    path = ROOT / "dist" / f"{name}_{version}+{TAGS[python]}_amd64.deb"
    return _made(path, "--version", version, "--python", python, f"--deb={name}")


def image(version: str) -> Path:
    """Returns the OCI image of that version, on Debian 13."""
    return _made(
        ROOT / "dist" / f"waypost-{version}-amd64.oci.tar", "--version", version, "--python", "3.13", "--image"
    )


def _made(path: Path, *options: str) -> Path:
    if not path.exists() or path.stat().st_mtime < newest_source():
        run(ROOT / "make-release", *options, timeout_s=BUILD_S)
    return path


def newest_source() -> float:
    """Returns when the last of the files that a package is made of was changed, in seconds since 1970."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *SOURCES]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = (ROOT / name for name in listed.split("\0") if name)
    return max(path.stat().st_mtime for path in paths if path.is_file())
