"""Checks whether the workers of a Spark cluster see the files of this host: they read the typed events, and share the disk with
this host.

Without the check, a run would fail in the middle, with Java's words for a file that is not there. No Python of ours runs on a
worker.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from appliance.pipeline.events import event_paths
from appliance.pipeline.failure import in_short

__all__ = ["NotShared", "check_shared"]

TASKS_A_CORE = 2  # so that each worker gets some
FILES_MAX = 64  # of events that are opened
ADVICE = "mount it on each worker under the same path, for the user of the worker (docs/reports.md, On a cluster)"


class NotShared(Exception):
    """Raised when the workers do not see the files of this host; the message names the directory and what to do."""


def check_shared(session: SparkSession, places: Sequence[Path], scratch: Path) -> None:
    """Lets the workers write below ``scratch``, and open files of events in these places. Raises NotShared."""
    cores = session.sparkContext.defaultParallelism
    probe = scratch / "probe"
    shutil.rmtree(probe, ignore_errors=True)
    tasks = TASKS_A_CORE * cores
    try:
        session.range(tasks, numPartitions=tasks).selectExpr("CAST(id AS STRING)").write.text(str(probe))
        written = sum(path.stat().st_size > 0 for path in probe.glob("part-*"))
    except (PySparkException, Py4JJavaError) as error:
        raise NotShared(f"Spark's workers cannot write to {scratch.parent} ({in_short(error)}); {ADVICE}") from error
    finally:
        shutil.rmtree(probe, ignore_errors=True)
    if written < tasks:
        where = f"{written} of {tasks} files that they wrote are on this host"
        raise NotShared(f"Spark's workers do not share {scratch.parent} ({where}); {ADVICE}")
    for directory in places:
        _check_read(session, directory)


def _check_read(session: SparkSession, events: Path) -> None:
    some = [str(path) for path in itertools.islice(event_paths(events), FILES_MAX)]
    if not some:
        return
    try:  # the length is that which the worker sees
        session.read.format("binaryFile").load(some).select("length").collect()
    except (PySparkException, Py4JJavaError) as error:
        raise NotShared(f"Spark's workers cannot read {events} ({in_short(error)}); {ADVICE}") from error
