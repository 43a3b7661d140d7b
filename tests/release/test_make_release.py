"""What a release is made of: built twice it is the same, and an empty environment needs nothing of the checkout to run it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.test_tidy import FILES, ROOT

ENVIRONMENT = 'say() { echo "$*" >&2; }\nenvironment() { :; }\n'  # of the checkout: nothing is installed for a test
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the project as they are now, committed."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
        (folder / name).chmod((ROOT / name).stat().st_mode)
    (folder / "environment.sh").write_text(ENVIRONMENT)
    (folder / ".venv").symlink_to(sys.prefix)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "all of it")
    return folder


def make(checkout: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["./make-release", *options],
        cwd=checkout,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
        check=False,
    )


def test_a_tree_that_is_not_clean_is_no_release(checkout: Path) -> None:
    (checkout / "new").touch()
    done = make(checkout, "--no-wheels")
    (checkout / "new").unlink()
    assert done.returncode == 65
    assert "not committed" in done.stderr


def test_the_changelog_names_the_version(checkout: Path) -> None:
    assert f"\n## {VERSION}\n" in (ROOT / "CHANGELOG.md").read_text()
    text = (checkout / "CHANGELOG.md").read_text()
    (checkout / "CHANGELOG.md").write_text(text.replace(f"## {VERSION}\n", "## 9.9.9\n"))
    git(checkout, "commit", "--all", "--quiet", "--message", "another heading")
    done = make(checkout, "--no-wheels")
    git(checkout, "reset", "--hard", "--quiet", "HEAD~1")
    assert done.returncode == 65
    assert f'no heading "## {VERSION}"' in done.stderr


@pytest.mark.long
def test_a_release_built_twice_is_the_same_and_runs_without_the_checkout(checkout: Path, tmp_path: Path) -> None:
    built = []
    for _ in range(2):
        done = make(checkout, "--own-wheel")
        assert done.returncode == 0, done.stderr
        built.append({path.name: path.read_bytes() for path in (checkout / "dist").iterdir()})
    wheel = f"waypost-{VERSION}-py3-none-any.whl"
    client = f"waypost_client-{VERSION}-py3-none-any.whl"
    assert set(built[0]) == {wheel, client, f"waypost-appliance-{VERSION}.tar.gz"}
    assert built[0] == built[1]
    with tarfile.open(checkout / "dist" / f"waypost-appliance-{VERSION}.tar.gz") as archive:
        assert {"MANIFEST.json", "FILES.json", "README.md"} <= set(archive.getnames())
    is_whole(checkout / "dist" / wheel)
    runs(checkout / "dist" / wheel, tmp_path)


def is_whole(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    sources = {name for name in FILES if name.startswith(("mailcore/", "appliance/")) and name.endswith(".py")}
    shown = {f"appliance/{name}" for name in FILES if name.startswith(("templates/", "static/"))}
    assert (sources | shown) - inside == set()
    shared = {name for name in FILES if name.startswith("share/")}
    assert shared <= {name.partition(".data/data/")[2] for name in inside}
    assert not [name for name in inside if name.startswith("tests/") or name.endswith(".pyc")]


def runs(wheel: Path, folder: Path) -> None:
    """In an environment that has nothing but the wheel, and what it depends on beside it."""
    made = folder / "venv"
    venv.create(made, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(made), "platbase": str(made)}))
    # As --target would be: what others publish is not looked for on a network, and the checkout's own .pth is not followed.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", made / "bin" / "python", "install", "--quiet", "--no-deps", wheel],
        check=True,
        capture_output=True,
        timeout=120,
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    (folder / "waypost.toml").write_text(f'home = "home"\n[portal]\nlisten = "127.0.0.1:{port}"\n')
    environment = {
        "PATH": os.environ["PATH"],
        "WAYPOST_CONFIG": str(folder / "waypost.toml"),
        "DJANGO_SETTINGS_MODULE": "appliance.settings",
    }

    def run(*words: str | Path, timeout_s: float = 120) -> str:
        done = subprocess.run(
            list(words), cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(made / "bin" / "waypost", "--version") == f"waypost {VERSION}\n"
    assert str(made) in run(made / "bin" / "python", "-c", "import mailcore; print(mailcore.__file__)")
    run(made / "bin" / "waypost", "check-config")
    run(made / "bin" / "waypost", "backup", "b")
    for command in (
        ["migrate", "--verbosity", "0"],
        ["createcachetable"],
        ["collectstatic", "--no-input", "--verbosity", "0"],
    ):
        run(made / "bin" / "python", "-m", "django", *command)
    assert (folder / "home" / "portal" / "static" / "appliance").is_dir()
    page = run(made / "bin" / "python", "-c", PAGE)
    assert "csrfmiddlewaretoken" in page
    assert "Waypost" in page


PAGE = """
import django
django.setup()
from django.test import Client
answer = Client(headers={"host": "127.0.0.1"}).get("/accounts/login/")
assert answer.status_code == 200, answer.status_code
print(answer.content.decode())
"""
