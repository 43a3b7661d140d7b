"""Makes the portal's database of a release. Once, when the release is made.

    python tests/homes/make_portal.py [CHECKOUT]        # tests/homes/VERSION.portal.sqlite3.gz, by the code in CHECKOUT

What is in it stands in ``portal_contents.py``; what later code must make of it in ``tests/release/test_portal.py``.
"""

from __future__ import annotations

import gzip
import os
import sqlite3
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

__all__ = ["SECRET_KEY"]

SECRET_KEY = "of the kept portals, and of nobody else"  # the administrator's TOTP secret is locked with it
HERE = Path(__file__).resolve().parent
FILL = (
    f"import django, runpy; django.setup(); runpy.run_path({str(HERE / 'portal_contents.py')!r}, run_name='__main__')"
)


def main() -> int:
    checkout = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent).absolute()
    version = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]["version"]
    packed = HERE / f"{version}.portal.sqlite3.gz"
    if packed.exists():
        print(f"{packed} is there: a release's portal is made once", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        portal = Path(folder) / "home" / "portal"
        portal.mkdir(parents=True)
        (Path(folder) / "waypost.toml").write_text('home = "home"\n')
        environment = os.environ | {
            "WAYPOST_CONFIG": f"{folder}/waypost.toml", "WAYPOST_SECRET_KEY": SECRET_KEY, "PYTHONPATH": str(checkout),
            "DJANGO_SETTINGS_MODULE": "appliance.settings",
        }  # fmt: skip
        for command in (["manage.py", "migrate"], ["manage.py", "collectstatic", "--no-input"], ["-c", FILL]):
            subprocess.run([sys.executable, *command], cwd=checkout, env=environment, check=True, stdout=sys.stderr)
        copy = Path(folder) / "copy"
        with sqlite3.connect(portal / "portal.sqlite3") as database:
            database.execute("VACUUM INTO ?", (str(copy),))
        with packed.open("wb") as file, gzip.GzipFile("", "wb", mtime=0, fileobj=file) as compressed:
            compressed.write(copy.read_bytes())
    print(packed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
