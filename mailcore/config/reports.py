"""The section [reports]: the nightly reports."""

from __future__ import annotations

from dataclasses import dataclass

from mailcore.bounds import DAY_S, choice, text, texts, whole
from mailcore.config import values

__all__ = ["Reports"]


@dataclass(frozen=True, kw_only=True)
class Reports:
    """[reports]: the nightly reports, which `./run` makes beside the core. The core itself reads only `zone`."""

    broker_url: str = text(
        "",
        "address of a Redis server, redis://host:port/0; the environment variable REDIS_URL overrides it",
        values.broker_url,
        special={"": "./run starts one, with a socket below run_directory"},
    )
    spark_master: str = text(
        "local[*]", "where Spark runs: local[N], spark://host:port, yarn or k8s://…", values.spark_master
    )
    zone: str = text("UTC", "time zone of a report's day and of the schedules' times", values.zone)
    recipients: tuple[str, ...] = texts((), "mail addresses that the report is sent to", values.mailbox)
    sender: str = text(
        "", "From address of that mail", values.mailbox, special={"": "waypost@ and the name of this host"}
    )
    numbers: str = choice(
        "en",
        ("en", "de", "fr"),
        "format of numbers in reports: 1,234.5 or 1.234,5 or 1 234,5",
    )
    timeout_s: int = whole(
        6 * 3600, 60, 7 * DAY_S, "seconds", "time after which a running report is ended and counts as failed"
    )
    retries: int = whole(3, 0, 20, "times", "how often a failed report is tried again")
    retry_wait_s: int = whole(
        900, 1, DAY_S, "seconds", "wait before the first retry; each further wait is twice as long"
    )
    catch_up_days: int = whole(
        7, 1, 400, "days", "how far back reports are made for days that have events and no report"
    )
    keep_days: int = whole(1100, 1, 36_500, "days", "how long the tables of a day are kept")
    keep: tuple[str, ...] = texts(
        ("senders:400", "recipients:400", "clients:400", "silver:30"),
        'tables with another time, each "TABLE:DAYS"; silver is the typed events that tables are made from',
        values.table_days,
    )
    keep_runs_days: int = whole(400, 1, 36_500, "days", "how long the portal keeps the list of runs and their logs")
    rows_shown_max: int = whole(200, 10, 10_000, "rows", "maximum rows of a table on the page; the download has more")
    download_rows_max: int = whole(
        200_000, 100, 10_000_000, "rows", "maximum rows of a table in a CSV or Parquet download"
    )
