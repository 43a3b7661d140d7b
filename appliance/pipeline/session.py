"""Starts Spark: its Java, its memory limits, and our code for a cluster's executors.

Memory: 4 GB in total. On one machine the driver does all the work; a cluster has a small driver and executors of 1 GB. Larger
data spills to ``scratch``. Times are UTC; the portal's time zone only determines where a day begins (``days``).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from appliance.pipeline.class_data import ClassData
from appliance.pipeline.failure import in_short
from appliance.pipeline.java import java_home

__all__ = ["INTERPRETED", "QUICK", "QUICK_JAVA", "NoMaster", "end", "shipped", "start"]

LOCAL_MEMORY = "2600m"  # heap; with metaspace, code, stacks and Python about 3.3 GB
DRIVER_MEMORY = "1g"
EXECUTOR_MEMORY = "1g"
# For some thousand events compiling queries takes longer than counting, for some hundred thousand counting.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
# Java's quick compiler: up to some million attempts the other one costs more than it saves.
QUICK_JAVA = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=128m "
    "-XX:MaxMetaspaceSize=400m"
}
QUICK = QUICK_JAVA | INTERPRETED
# By default Java does not compile methods as large as those of wide tables.
JAVA_OPTIONS = "-XX:+UseParallelGC -XX:-DontCompileHugeMethods"
LAUNCHER_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # of the small Java that puts the command together
ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("appliance/__init__.py", "mailcore/__init__.py")
SCHEMA = (
    "mailcore/balance.py",
    "mailcore/extras.py",
    "mailcore/events/__init__.py",
    "mailcore/events/checksum.py",
    "mailcore/events/schema.py",
)


class NoMaster(Exception):
    """Raised when Spark's master does not answer or is invalid."""


def start(
    master: str, scratch: Path, options: dict[str, str] | None = None, classes: ClassData | None = None
) -> SparkSession:
    """Starts a Spark session. ``master``: "local[*]", "spark://host:port", or another URL that Spark accepts.
    ``options`` (``spark.…``) override ours; ``classes``: what Java need not load again.

    Raises NoJava, NoMaster.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    home = java_home(scratch)
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", LAUNCHER_OPTIONS)
    settings = _settings(master, scratch) | (options or {})
    with_classes = classes.options(home) if classes is not None else ()
    try:
        return _start(master, scratch, settings, with_classes)
    except NoMaster:
        if classes is None or not with_classes or not master.startswith("local"):
            raise
        classes.forget()  # the archive may be why
        return _start(master, scratch, settings, ())


def _settings(master: str, scratch: Path) -> dict[str, str]:
    local = master.startswith("local")
    settings = {
        "spark.driver.memory": LOCAL_MEMORY if local else DRIVER_MEMORY,
        "spark.executor.memory": EXECUTOR_MEMORY,
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -XX:MaxMetaspaceSize=400m",
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "false",  # a reply that is not a number becomes null instead of failing the run
        "spark.sql.adaptive.enabled": "false",  # partitions are chosen by the size of the data (``events``)
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # files are named one by one
        "spark.sql.files.openCostInBytes": "1m",
        "spark.sql.files.maxPartitionBytes": "32m",
        "spark.sql.parquet.compression.codec": "snappy",
        "spark.sql.maxConcurrentOutputFileWriters": "16",  # a file for each kind at once, instead of sorting by kind
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",  # the output is published later
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        "spark.shuffle.compress": "true",
    }
    if local:
        # Spark listens on this host only, and starts even if the host name does not resolve: it looks up its address
        # before it reads its settings.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        for name in ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"):
            os.environ.setdefault(name, "127.0.0.1")
    return settings


def _start(master: str, scratch: Path, settings: dict[str, str], java_options: Sequence[str]) -> SparkSession:
    own = settings["spark.driver.extraJavaOptions"]
    settings = settings | {"spark.driver.extraJavaOptions": " ".join([own, *map(shlex.quote, java_options)])}
    threading.Thread(target=_import_ahead, daemon=True).start()
    builder = SparkSession.Builder().master(master).appName("waypost reports")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
        if not master.startswith("local"):
            session.sparkContext.addPyFile(str(shipped(scratch)))
    except Exception as error:  # a silent master is reported as a stopped context
        raise NoMaster(
            f"Spark cannot start at {master}: {in_short(error, scratch, master)}; check the address and that the master runs"
        ) from error
    return session


def _import_ahead() -> None:
    """Imports, while Java starts, what PySpark imports at its first call of Java: pandas among others."""
    with contextlib.suppress(Exception):  # then PySpark goes without, or says why
        importlib.import_module("pyspark.testing.utils")


def end(session: SparkSession, classes: ClassData | None = None) -> None:
    """Stops Spark, and lets Java keep its classes if it was started for that: then it ends, and there is no other session."""
    gateway = SparkContext._gateway
    session.stop()
    if classes is not None:
        classes.ended(getattr(gateway, "proc", None))


def shipped(scratch: Path) -> Path:
    """Writes our code into a zip file for a cluster's executors, and returns its path."""
    archive = scratch / "waypost-reports.zip"
    pipeline = Path(__file__).resolve().parent
    files = [*(ROOT / name for name in (*SHIPPED, *SCHEMA)), *pipeline.rglob("*.py")]
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        for path in sorted(files):
            writer.write(path, path.relative_to(ROOT))
    return archive
