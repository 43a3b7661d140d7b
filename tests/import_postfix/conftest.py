"""Fixtures: a queue that Postfix made, once for all tests; they get copies."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.mta import Postfix
from tests.faults import reworded
from tests.import_postfix.old_queue import OldQueue, make_old_queue, spread

__all__ = ["reworded"]


@pytest.fixture(autouse=True)
def no_message_matters(reworded: None) -> None:
    """The import works with whatever the control socket says."""


@pytest.fixture(scope="session")
def made_queue() -> Iterator[OldQueue]:
    if missing := Postfix.missing():
        pytest.skip(missing)
    with tempfile.TemporaryDirectory(prefix="wp") as name:
        directory = Path(name)
        directory.chmod(0o755)  # Postfix's own user works in it
        yield make_old_queue(directory)


@pytest.fixture
def old(made_queue: OldQueue, tmp_path: Path) -> OldQueue:
    return spread(made_queue, tmp_path)
