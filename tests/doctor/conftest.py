"""What several tests of the doctor stand on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def place() -> Iterator[Path]:
    """Not below pytest's own directory, which other users may not enter."""
    directory = Path(tempfile.mkdtemp(prefix="wp-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)
