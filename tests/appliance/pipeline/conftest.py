"""One Spark session for all tests of the pipeline: its start takes seconds. Each test has its own store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from appliance.pipeline.build_day import ReportBuilder
from appliance.pipeline.session import QUICK, end, start
from appliance.pipeline.store import Store

NOW = datetime(2027, 6, 1, tzinfo=UTC).timestamp()  # all days of these tests are over, whatever the clock says


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start("local[2]", tmp_path_factory.mktemp("spark"), QUICK)
    yield session
    end(session)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events"


@pytest.fixture
def builder(spark: SparkSession, tmp_path: Path, events: Path) -> Iterator[ReportBuilder]:
    store = Store(tmp_path / "reports")
    with store.locked():
        yield ReportBuilder(spark, store, events, lambda stage, share: None, lambda: NOW)


@pytest.fixture
def another(spark: SparkSession, events: Path) -> Callable[[Path], ReportBuilder]:
    """A builder that knows nothing of what one before it did."""
    return lambda root: ReportBuilder(spark, Store(root), events, lambda stage, share: None, lambda: NOW)
