"""Reports as the pipeline leaves them, made in a moment: for tests of the pages, the mail and the files.

make_report(settings.REPORTS_DIRECTORY, Period.DAY, date(2026, 11, 18), balances=False)
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.conf import settings

from appliance.pipeline.store import VERSION
from appliance.reports.report_store import Period

__all__ = ["HOSTILE", "make_report", "reports_directory", "tables"]

HOSTILE = '=cmd|"/c calc"!A1<script>alert(1)</script>\u202e\x1b[31m'
BALANCED = {"accepted": 1200, "queued_at_start": 30, "delivered": 1100, "bounced": 60, "expired": 5, "deleted": 5,
            "queued_at_end": 60, "difference": 0}  # fmt: skip
SUSPECT = {"queue_id": "0123456789ABCDEF", "why": "no event of its acceptance", "accepted": 0, "ended": 1,
           "events": ["journal 1234-5678 in dt=2026-11-18/journal.0.parquet"]}  # fmt: skip


def delays(name: str, number: int, share: float = 0.9, key: str = "destination") -> dict[str, Any]:
    """A row of destinations or providers, with what people do not see."""
    delivered = int(number * share)
    return {
        key: name, "messages": number, "recipients": number, "attempts": number + 10, "delivered": delivered,
        "deferred": 10, "bounced": number - delivered, "expired": 0, "deleted": 0, "delivered_share": share,
        "deferred_share": 0.01, "bounced_share": 1 - share, "expired_share": 0.0, "delay_p50_s": 0.8, "delay_p90_s": 4.2,
        "delay_p99_s": 312.0, "delay_max_s": 4000.5, "delay_a_s": 0.1, "delay_b_s": 0.2, "delay_c_s": 0.3, "delay_d_s": 0.4,
        "delay_a_sum_us": 1000, "delay_max_us": 4_000_500_000, "delays": [{"bucket": 1, "count": delivered}],
    }  # fmt: skip


def tables(destinations: int = 12, mail: int = 1200) -> dict[str, list[dict[str, Any]]]:
    """Each table that there is, some with strangers' text at its worst."""
    names = [f"smtp:domain{number}.example" for number in range(destinations - 1)]
    total = {
        "messages": mail, "recipients": mail, "size_bytes": 123_456_789, "attempts": mail + 50, "delivered": mail - 100,
        "deferred": 90, "bounced": 60, "put_off": 40, "returned": 0, "expired": 5, "deleted": 5, "refused": 17,
        "delivered_share": 0.88, "deferred_share": 0.072, "bounced_share": 0.048, "delay_p50_s": 0.8, "delay_p90_s": 4.2,
        "delay_p99_s": 312.0, "finished": mail - 30,
    }  # fmt: skip
    hours = [
        {"hour": hour, "begins_at": 1_763_420_400.0 + 3600 * hour, "clock": f"{hour:02}:00 +0100", "messages": 40 + hour,
         "recipients": 50 + hour, "size_bytes": 1000, "attempts": 60, "delivered": 30 + 2 * hour, "deferred": hour,
         "bounced": hour // 4, "expired": 0, "deleted": 0, "refused": 0}
        for hour in range(24)
    ]  # fmt: skip
    return {
        "totals": [total],
        "destinations": [
            *(delays(name, 50 * (number + 1)) for number, name in enumerate(names)), delays(f"smtp:{HOSTILE}", 7),
        ],
        "providers": [delays("example.net", 900, key="provider"), delays("", 10, 0.0, key="provider")],
        "reasons": [
            {"status": "deferred", "dsn": "4.2.2", "reason": "452 4.2.2 <address> over quota", "recipients": 55,
             "destinations": 3, "top_destination": "smtp:domain1.example", "example": "452 4.2.2 <a@b.example> over quota"},
            {"status": "bounced", "dsn": "5.1.1", "reason": HOSTILE, "recipients": 60, "destinations": 1,
             "top_destination": "smtp:domain2.example", "example": HOSTILE},
        ],
        "senders": [{"sender": "", "messages": 9, "recipients": 9, "size_bytes": 900},
                    {"sender": "news@sender.example", "messages": 800, "recipients": 900, "size_bytes": 9_000_000}],
        "clients": [{"client_address": "192.0.2.7", "messages": 800, "recipients": 900, "size_bytes": 9, "refused": 2}],
        "recipients": [{"recipient": "=2+3@example.org", "messages": 12}],
        "hours": hours,
        "encryption": [{"direction": "out", "version": "TLSv1.3", "level": "dane", "reason": "TLSA 3 1 1 of <host>",
                        "cipher": "TLS_AES_256_GCM_SHA384", "count": 1000},
                       {"direction": "out", "version": "", "level": "may", "reason": f"sent in the clear: {HOSTILE}",
                        "cipher": "", "count": 2},
                       {"direction": "in", "version": "", "level": "", "reason": "", "cipher": "", "count": 3}],
        "windows": [{"destination": "smtp:domain1.example", "samples": 1440, "window_min": 1.0, "window_mean": 7.25,
                     "window_max": 20.0, "busy_mean": 3.2, "busy_max": 20, "queued_max": 4000, "dead_minutes": 75}],
        "refused": [{"stage": "RCPT", "reason": "554 5.7.1 relay access denied", "count": 17, "clients": 2,
                     "top_client": "192.0.2.7", "example": "554 5.7.1 relay access denied"}],
        "ages": [{"from_s": 0, "to_s": 300, "messages": 40}, {"from_s": 432_000, "to_s": None, "messages": 2}],
        "arrivals": [{"stretch": "01ABC", "arrived_at": 1.0, "accepted": 3, "finished": 2}],
        "comparison": [
            {"scope": "total", "name": "", "measure": "bounced", "value": 60.0, "day_before": 3.0, "week_before": 4.0,
             "stands_out": True, "change": 20.0},
            {"scope": "total", "name": "", "measure": "delivered_share", "value": 0.88, "day_before": 0.868,
             "week_before": None, "stands_out": False, "change": 0.012},
            {"scope": "total", "name": "", "measure": "deferred_share", "value": 0.072, "day_before": 0.0721,
             "week_before": None, "stands_out": False, "change": 0.0},
            {"scope": "total", "name": "", "measure": "bounced_share", "value": 0.048, "day_before": 0.06,
             "week_before": None, "stands_out": False, "change": -0.012},
            {"scope": "destination", "name": "smtp:domain1.example", "measure": "deferred_share", "value": 0.5,
             "day_before": 0.01, "week_before": None, "stands_out": True, "change": 0.49},
            {"scope": "destination", "name": "smtp:domain2.example", "measure": "attempts", "value": 90.0,
             "day_before": 91.0, "week_before": 92.0, "stands_out": False, "change": 0.99},
        ],
    }  # fmt: skip


def make_report(
    root: Path,
    period: Period,
    start: date,
    balances: bool | None = True,
    given: dict[str, list[dict[str, Any]]] | None = None,
    **told: Any,
) -> Path:
    """A version, and the name that points at it; the version's directory. ``told``: more of report.json."""
    version = root / "versions" / f"gold.{period.directory(start)}.{len(list(root.glob('versions/*')))}"
    for name, rows in (tables() if given is None else given).items():
        (version / name).mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), version / name / "part-0.parquet")
    version.mkdir(parents=True, exist_ok=True)
    words = {True: "It balances.", False: "It does not balance: 1 recipient ended that never came in.",
             None: "Nobody counted what was queued at its end: whether it balances is not known."}[balances]  # fmt: skip
    balance: dict[str, Any] = {"balances": balances, "words": words}
    if period is Period.DAY and balances is not None:
        balance |= BALANCED | {"suspects": [], "suspects_left_out": 0, "gaps": []}
    if balances is False:
        balance |= {"suspects": [SUSPECT], "gaps": [{"lane": "journal", "begin": 1000, "end": 2000}]}
        balance["altered"] = [{"lane": "journal", "what": "deferred", "exported": 4, "found": 3}]
    content = {"version": VERSION, "zone": "Europe/Vienna", "words": words, "balance": balance, "damaged": [], **told}
    if period is Period.DAY:
        content = {"day": start.isoformat(), **content}
    (version / "report.json").write_text(json.dumps(content))
    pointer = root / "gold" / period.directory(start)
    pointer.parent.mkdir(exist_ok=True)
    pointer.unlink(missing_ok=True)
    pointer.symlink_to(f"../versions/{version.name}")
    return version


@pytest.fixture
def reports_directory() -> Iterator[Path]:
    """The portal's own, empty at the beginning and gone at the end."""
    directory = Path(settings.REPORTS_DIRECTORY)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
