"""The tests are tested: break a law, and one of those named beside the break must fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutations import (
    of_alerts,
    of_api,
    of_authenticity,
    of_bounces,
    of_changes,
    of_checks,
    of_cli,
    of_clients,
    of_cut_through,
    of_data,
    of_feed,
    of_kept,
    of_log,
    of_logins,
    of_lookup,
    of_milters,
    of_node_trust,
    of_nodes,
    of_nodes_reports,
    of_peers,
    of_pickup,
    of_queue,
    of_recount,
    of_references,
    of_reload,
    of_replication,
    of_reports,
    of_routes,
    of_scheduler,
    of_settings_of_nodes,
    of_shares,
    of_signing_in,
    of_store,
    of_tls,
    of_traces,
)
from tests.mutations.mutation import Mutation

MUTATIONS = [
    *of_alerts.MUTATIONS,
    *of_api.MUTATIONS,
    *of_authenticity.MUTATIONS,
    *of_bounces.MUTATIONS,
    *of_changes.MUTATIONS,
    *of_checks.MUTATIONS,
    *of_cli.MUTATIONS,
    *of_clients.MUTATIONS,
    *of_cut_through.MUTATIONS,
    *of_data.MUTATIONS,
    *of_feed.MUTATIONS,
    *of_kept.MUTATIONS,
    *of_log.MUTATIONS,
    *of_logins.MUTATIONS,
    *of_lookup.MUTATIONS,
    *of_milters.MUTATIONS,
    *of_node_trust.MUTATIONS,
    *of_settings_of_nodes.MUTATIONS,
    *of_nodes.MUTATIONS,
    *of_peers.MUTATIONS,
    *of_nodes_reports.MUTATIONS,
    *of_pickup.MUTATIONS,
    *of_queue.MUTATIONS,
    *of_references.MUTATIONS,
    *of_reload.MUTATIONS,
    *of_replication.MUTATIONS,
    *of_reports.MUTATIONS,
    *of_routes.MUTATIONS,
    *of_scheduler.MUTATIONS,
    *of_shares.MUTATIONS,
    *of_signing_in.MUTATIONS,
    *of_store.MUTATIONS,
    *of_tls.MUTATIONS,
    *of_traces.MUTATIONS,
]
ROOT = Path(__file__).parents[2]
TIMEOUT_S = 300.0
PATIENCE_S = "60"  # of a test that waits for what the break prevents


def test_every_mutation_still_fits_the_source() -> None:
    for mutation in [*MUTATIONS, *of_recount.MUTATIONS]:  # the latter run in tests/end_to_end/test_recount_mutations.py
        source = (ROOT / mutation.file).read_text()
        assert source.count(mutation.old) == 1, f"{mutation.name}: its text occurs {source.count(mutation.old)} times"
        assert mutation.old != mutation.new


def test_names_are_not_used_twice() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("mutated")
    for name in ("appliance", "mailcore", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.long
@pytest.mark.timeout(2 * TIMEOUT_S + 30)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_broken_law_is_named_by_a_test(mutation: Mutation, copy: Path) -> None:
    file = copy / mutation.file
    source = file.read_text()
    file.write_text(source.replace(mutation.old, mutation.new))
    try:
        done = _run(copy, mutation.tests)
        if done.returncode == 0:  # the test that names it may be a long one
            done = _run(copy, mutation.tests, "--long")
    finally:
        file.write_text(source)
    assert done.returncode == 1, f"no test noticed: {mutation.name}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "FAILED" in done.stdout, done.stdout[-2000:]


def _run(copy: Path, tests: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *options, *_split(tests)],
        cwd=copy,
        env={"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin", "WAYPOST_TEST_PATIENCE_S": PATIENCE_S},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def _split(tests: str) -> list[str]:
    files, _, chosen = tests.partition(" -k ")
    return files.split() + (["-k", chosen] if chosen else [])
