"""Reasons for people: the deepest cause, without what Spark wraps around it."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from appliance.pipeline.failure import JAVA_ENDED, in_short

WRAPPED = """An error occurred while calling o4893.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult: Job aborted
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure
\t... 12 more
Caused by: java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
"""
WITHOUT_CAUSES = """An error occurred while calling o1.parquet.
: org.apache.spark.SparkException: Job aborted: Lost task 0.0 (TID 5) (x executor driver): java.io.IOException: No space left
\tat x"""
STOPPED = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.
This stopped SparkContext was created at:"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WRAPPED, "IOException: No space left on device"),
        (WITHOUT_CAUSES, "IOException: No space left"),
        (STOPPED, "Spark stopped in the middle of it"),
        ("[Errno 28] No space left on device\nand more", "RuntimeError: [Errno 28] No space left on device"),
        ("", "RuntimeError: "),
    ],
)
def test_the_deepest_cause_is_told(text: str, words: str) -> None:
    assert in_short(RuntimeError(text)) == words


def test_a_disk_that_is_full_and_a_master_that_is_silent_are_named() -> None:
    assert in_short(RuntimeError(WRAPPED), Path("/var/reports")) == (
        "IOException: No space left on device, below /var/reports"
    )
    assert in_short(RuntimeError(WITHOUT_CAUSES[:40]), Path("/var/reports")).count("below") == 0
    told = in_short(RuntimeError(STOPPED), None, "spark://master:7077")
    assert told == "Spark's master spark://master:7077 did not answer, or refused"


def test_that_java_is_gone_is_said() -> None:
    for error in (Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111, "refused")):
        assert in_short(error) == f"{JAVA_ENDED} ({type(error).__name__})"


def test_an_error_of_sparks_own_names_what_was_wrong_in_java(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="bad luck") as failed:
        spark.range(1).select(F.raise_error(F.lit("bad luck"))).collect()
    told = in_short(failed.value)
    assert "bad luck" in told
    assert "An error occurred" not in told
    assert "\n" not in told
