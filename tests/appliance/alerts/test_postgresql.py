"""Alerts, notices and their pages on a PostgreSQL server: the tests of this room, once more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.appliance.common.test_postgresql import postgresql
from tests.test_tidy import ROOT

__all__ = ["postgresql"]  # a fixture
AGAIN = ("test_book", "test_gathering", "test_outbox", "test_pages", "test_watching")


@pytest.mark.long
def test_what_holds_on_sqlite_holds_there(postgresql: str) -> None:
    environment = dict(os.environ) | {"WAYPOST_TESTS_POSTGRESQL": postgresql}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "--ds", "tests.appliance.reports.on_postgresql",
         "--create-db", *(f"tests/appliance/alerts/{name}.py" for name in AGAIN)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=380, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout
