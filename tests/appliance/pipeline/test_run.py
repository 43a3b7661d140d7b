"""The command, as Celery and people start it: its lines, its status, killed at any stage, and on a cluster."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from appliance.pipeline import run
from appliance.pipeline.balance import UNBALANCED as UNBALANCED_STATE
from appliance.pipeline.balance import Balance, Suspect
from appliance.pipeline.build_day import Told, read_table
from appliance.pipeline.counters import Altered
from appliance.pipeline.days import Day
from appliance.pipeline.missing import Gap
from appliance.pipeline.run import BUSY, FAILED, UNBALANCED, main
from appliance.pipeline.session import NoMaster, start
from appliance.pipeline.store import Store
from tests.appliance.pipeline.sample_events import SampleMail
from tests.eventually import PATIENCE_S, eventually_blocking

DAY = Day(date(2026, 11, 20), "Europe/Berlin")


def command(events: Path, output: Path, *more: str) -> list[str]:
    arguments = [str(DAY.date), "--events", str(events), "--output", str(output), "--zone", DAY.zone, *more]
    return [sys.executable, "-m", "appliance.pipeline", *arguments]


def some_mail(events: Path, lose: bool = False) -> None:
    sample = SampleMail()
    sample.cut(events, DAY.begin)
    sample.traffic(DAY.begin, DAY.end, 200)
    first = next(row["queue_id"] for row in sample.rows if row["kind"] == "finished")
    sample.write(events, 100, without=lambda row: lose and row["kind"] == "attempt" and row["queue_id"] == first)
    sample.cut(events, DAY.end)


def tables(output: Path) -> dict[str, bytes]:
    version = Store(output).current(f"gold/{DAY.name}")
    if version is None:
        return {}
    return {str(path.relative_to(version)): path.read_bytes() for path in version.rglob("*") if path.is_file()}


def test_another_run_and_bad_arguments_have_their_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(DAY.date), "--events", str(tmp_path), "--output", str(tmp_path / "reports")]
    with Store(tmp_path / "reports").locked():
        assert main(arguments) == BUSY
    assert "another run" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--zone", "Europe/Nowhere"])
    assert ended.value.code == FAILED


def test_a_day_that_has_not_begun_is_refused_whoever_asks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["2999-01-01", "--events", str(tmp_path), "--output", str(tmp_path / "reports"), "--zone", DAY.zone]
    assert main(arguments) == FAILED
    assert capsys.readouterr().err == "2999-01-01 has not begun in Europe/Berlin; there is nothing to report yet\n"
    assert not (tmp_path / "reports").exists()


def test_a_file_that_is_gone_when_its_size_is_asked_for_has_none(tmp_path: Path) -> None:
    """The archive removes old days at any time."""
    day = tmp_path / f"dt={DAY.date}"
    day.mkdir()
    (day / "gone.parquet").symlink_to("nowhere")
    (day / "there.parquet").write_bytes(b"1234")
    assert run._size(tmp_path, DAY) == 4


def test_a_full_disk_is_a_failure_and_no_day_that_does_not_balance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run, "report", full)
    assert main([str(DAY.date), "--events", str(tmp_path), "--output", str(tmp_path / "reports")]) == FAILED
    last = capsys.readouterr().err.splitlines()[-1]
    words = f"could not make the report: OSError: [Errno 28] No space left on device, below {tmp_path / 'reports'}"
    assert last == words


def test_a_red_report_names_messages_lanes_and_gaps_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    suspect = Suspect("0AAAA000000000", "no event of its acceptance", 0, 1, ("journal 64 in dt=2026-11-20/x.parquet",))
    red = Balance(
        UNBALANCED_STATE,
        "It does not balance: 1 recipient came in.",
        suspects=[suspect],
        gaps=[Gap("journal", 100, 200), Gap("incoming.0", 1, 2, "2026-11-21")],
        altered=[Altered("journal", "bounced", 3, 2)],
    )
    made = Told(tmp_path, red.words, False, {"balance": red.told()})
    monkeypatch.setattr(run, "report", lambda *_: made)
    assert main([str(DAY.date), "--events", str(tmp_path), "--output", str(tmp_path / "reports")]) == UNBALANCED
    said = capsys.readouterr()
    assert said.out.splitlines() == [red.words]
    assert said.err.splitlines() == [
        "0AAAA000000000: no event of its acceptance; journal 64 in dt=2026-11-20/x.parquet",
        "events differ: journal, bounced: 3 exported, 2 in the files",
        "missing from the event files: journal from 100 to 200",
        "missing from the event files: incoming.0 from 1 to 2, of 2026-11-21",
        red.words,
    ]


def test_a_master_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark tries for a minute, and then says this."""

    def silent(_: object) -> None:
        raise RuntimeError("IllegalStateException: Cannot call methods on a stopped SparkContext.")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", silent)
    with pytest.raises(NoMaster) as failed:
        start("spark://192.0.2.1:7077", tmp_path)
    assert "Spark's master spark://192.0.2.1:7077 did not answer, or refused" in str(failed.value)
    assert "IllegalState" not in str(failed.value)


@pytest.mark.long
def test_a_master_that_is_none_is_named(tmp_path: Path) -> None:
    some_mail(tmp_path / "events")
    done = subprocess.run(
        [*command(tmp_path / "events", tmp_path / "reports"), "--master", "sparkle://127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == FAILED
    assert done.stderr.splitlines()[-1].startswith("Spark cannot start at sparkle://127.0.0.1:1: ")


@pytest.mark.long
def test_it_tells_its_stages_and_what_it_found_and_fails_loudly(tmp_path: Path) -> None:
    some_mail(tmp_path / "events")
    done = subprocess.run(
        command(tmp_path / "events", tmp_path / "reports"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    *stages, words = done.stdout.splitlines()
    assert json.loads(stages[-1]) == {"stage": "done", "share": 1.0}
    assert words == "It balances."
    some_mail(tmp_path / "lossy", lose=True)
    done = subprocess.run(
        command(tmp_path / "lossy", tmp_path / "red"), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == UNBALANCED
    assert re.search(
        r"^\w{13}: finished, but not all recipients have an outcome; .*journal\.\d+\.parquet", done.stderr, re.M
    )
    assert "does not balance" in done.stderr.splitlines()[-1]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_killed_at_any_stage_no_part_of_a_day_is_seen_and_the_next_run_makes_the_same(tmp_path: Path) -> None:
    events, output = tmp_path / "events", tmp_path / "reports"
    some_mail(events)
    whole = tmp_path / "whole"
    subprocess.run(command(events, whole), capture_output=True, timeout=PATIENCE_S, check=True)
    wanted = tables(whole)
    for stage in ("starting Spark", "reading events", "counting", "balancing"):
        with subprocess.Popen(
            command(events, output), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{") and json.loads(line)["stage"] == stage:
                    process.send_signal(signal.SIGKILL)
                    break
            else:
                pytest.fail(f"there was no {stage}")
            process.wait()
        assert tables(output) == {}

    def is_free() -> bool:
        done = subprocess.run(command(events, output), capture_output=True, timeout=PATIENCE_S, check=False)
        return done.returncode != BUSY

    eventually_blocking(is_free, "the lock of the killed run", look_every_s=1)
    assert tables(output) == wanted
    assert wanted


@contextlib.contextmanager
def open_cluster(tmp_path: Path, hidden: Path | None = None) -> Iterator[str]:
    """A master and two workers on this machine; ``hidden``: a directory that the workers do not see."""
    apart = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden)] if hidden else []
    home = Path(pyspark.__file__).parent
    environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    logs = [(tmp_path / f"{name}.log").open("w+") for name in ("master", "worker1", "worker2")]
    deploy = "org.apache.spark.deploy"
    started: list[subprocess.Popen[bytes]] = []

    def start(log: int, *arguments: str) -> None:
        spark_class = [*(apart if log else ()), str(home / "bin" / "spark-class"), *arguments]
        started.append(subprocess.Popen(spark_class, env=environment, stdout=logs[log], stderr=subprocess.STDOUT))

    def said(log: int, pattern: str) -> str:
        path = Path(logs[log].name)
        match = eventually_blocking(lambda: re.search(pattern, path.read_text()), path.read_text, look_every_s=0.2)
        assert match is not None
        return match[1]

    try:
        start(0, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = said(0, r"Starting Spark master at (spark://\S+)")
        for number in (1, 2):
            place = ["--webui-port", "0", "--work-dir", str(tmp_path / f"work{number}")]
            start(number, f"{deploy}.worker.Worker", "--cores", "1", "--memory", "1g", *place, master)
            said(number, r"(Successfully registered with master)")
        yield master
    finally:
        for process in started:
            process.kill()
            process.wait()
        for log in logs:
            log.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    with open_cluster(tmp_path) as master:
        yield master


@pytest.mark.long
def test_a_cluster_makes_the_same_tables(cluster: str, tmp_path: Path) -> None:
    events = tmp_path / "events"
    some_mail(events)
    outputs = [tmp_path / "here", tmp_path / "there"]
    for output, more in zip(
        outputs, ([], ["--master", cluster, "--option", "spark.driver.host=127.0.0.1"]), strict=True
    ):
        done = subprocess.run(
            command(events, output, *more), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
    here, there = map(tables, outputs)
    assert here == there
    version = Store(outputs[1]).current(f"gold/{DAY.name}")
    assert version is not None
    total = read_table(version / "totals")
    assert total is not None
    assert total.to_pylist()[0]["messages"] == 200


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="hides a directory from the workers: root only")
@pytest.mark.parametrize("hidden", ["events", "there"])
def test_a_cluster_whose_workers_do_not_see_the_files_says_so(tmp_path: Path, hidden: str) -> None:
    """Each event file was set aside as damaged instead, and an empty report was published."""
    events, output = tmp_path / "events", tmp_path / "there"
    some_mail(events)
    output.mkdir()
    with open_cluster(tmp_path, tmp_path / hidden) as master:
        more = ["--master", master, "--option", "spark.driver.host=127.0.0.1"]
        done = subprocess.run(
            command(events, output, *more), capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    assert done.returncode == 2, done.stderr[-3000:]
    reason = done.stderr.splitlines()[-1]
    does_not = f"cannot read {events}" if hidden == "events" else f"do not share {output}"
    assert reason.startswith(f"Spark's workers {does_not} ("), reason
    assert "mount it on each worker under the same path" in reason
    assert Store(output).current(f"gold/{DAY.name}") is None
