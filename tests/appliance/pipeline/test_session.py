"""Spark's session: what of the host it must not depend on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COUNT = """
import sys
from pathlib import Path
from appliance.pipeline import session
spark = session.start("local[1]", Path(sys.argv[1]))
print("counted", spark.range(7).count())
session.end(spark)
"""


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="gives a host another name: root only")
def test_a_host_whose_name_does_not_resolve_makes_reports(tmp_path: Path) -> None:
    """As a fresh container has one, or a server whose /etc/hosts was forgotten."""
    said = subprocess.run(
        ["unshare", "--uts", "sh", "-c", 'hostname no-such-host && exec "$@"', "sh", sys.executable, "-c", COUNT, tmp_path],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[4],
    )  # fmt: skip
    assert "counted 7" in said.stdout, said.stderr[-2000:]
