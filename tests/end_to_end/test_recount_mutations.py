"""Bugs that are put into the report pipeline on purpose: the recount by DuckDB names each, in the tables that it makes wrong.

One day is recorded, with kills, put off and deferred recipients, and without the two days and 20 kills of ``test_recount``. It
is reported in a zone whose midnight is the beginning of the recording, so that a wrong boundary of the day loses mail.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from tests.appliance.pipeline.test_other_programs import live
from tests.end_to_end.recount import Tables, differences, recount, tables_of
from tests.end_to_end.reporting import gold_of
from tests.mutations.mutation import Mutation
from tests.mutations.of_recount import MUTATIONS
from tests.test_tidy import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
DAY, ZONE = date(2026, 11, 22), "Etc/GMT-12"  # begins at noon of the day before, in UTC
PATIENCE_S = 300.0
REPORT = """
import sys
from datetime import date
from pathlib import Path
from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.days import Day
from appliance.pipeline.session import QUICK, end, start
from appliance.pipeline.store import Store

events, reports, day, zone = sys.argv[1:]
store = Store(Path(reports))
with store.locked():
    session = start("local[2]", store.root / "scratch", QUICK)
    try:
        ReportBuilder(session, store, Path(events), lambda stage, share: None).day(Day(date.fromisoformat(day), zone))
    finally:
        end(session)
"""


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(live(tmp_path_factory.mktemp("day")))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source, to be mutated."""
    root = tmp_path_factory.mktemp("mutated")
    for name in ("appliance", "mailcore"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def reported(source: Path, events: Path, home: Path) -> Tables:
    subprocess.run(
        [sys.executable, "-B", "-c", REPORT, str(events), str(home / "reports"), str(DAY), ZONE],
        cwd=source,
        env={"PYTHONPATH": str(source), "PATH": "/usr/bin:/bin"},
        check=True,
        timeout=PATIENCE_S,
    )
    return tables_of(gold_of(home, f"day={DAY}"))


@pytest.fixture(scope="module")
def counted(events: Path, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """By the recount, which agrees with the pipeline as it is."""
    home = tmp_path_factory.mktemp("unchanged")
    said = reported(ROOT, events, home)
    found = recount(events, DAY, ZONE, end=gold_of(home, f"day={DAY}").balance["end"])
    assert differences(said, found) == []
    return found


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_the_recount_names_a_bug_of_the_pipeline(
    mutation: Mutation, copy: Path, events: Path, counted: Tables, tmp_path: Path
) -> None:
    file = copy / mutation.file
    source = file.read_text()
    file.write_text(source.replace(mutation.old, mutation.new))
    try:
        found = differences(reported(copy, events, tmp_path), counted)
    finally:
        file.write_text(source)
    print(*found[:20], sep="\n")
    tables = {line.split()[0] for line in found}
    assert set(mutation.tests.split()) <= tables, f"not named: {mutation.name}; named: {sorted(tables)}"
