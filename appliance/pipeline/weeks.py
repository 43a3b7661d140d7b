"""Makes weeks and months from the tables of their days.

Each records the days it was made of, and their summaries. If a run ends between a day and its week (full disk, killed), the
week stays as it was; the next run detects that and makes it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow

from appliance.pipeline.build_day import ReportBuilder, write_json
from appliance.pipeline.daily_tables.delays import with_quantiles
from appliance.pipeline.daily_tables.periods import ADDED, MERGED
from appliance.pipeline.days import Period, month_of, week_of
from appliance.pipeline.store import DELETED, VERSION, Store, report_fingerprint, tells
from appliance.pipeline.tables import damaged, read_table, write_table
from mailcore.counted import counted

__all__ = ["behind", "make_period"]


def make_period(builder: ReportBuilder, period: Period, zone: str) -> Path | None:
    """Makes the period from the reports of its days; returns None if no day has a report."""
    there = _made(builder.store, period, zone)
    broken = {name: why for name, (version, _) in there.items() if (why := damaged(version))}
    for name in broken:  # as it is not in what this is made of, each run looks whether it has been made again
        del there[name]
    if not there:
        return None
    versions = [version for version, _ in there.values()]
    aside = builder.store.begin(f"gold/{period.name}")
    for name in MERGED:
        if (days := _days(name, versions)) is not None:
            write_table(aside / name, with_quantiles(MERGED[name](days)))
    content = _content(period, zone, {name: said for name, (_, said) in there.items()})
    content["left_out"] = [
        f"gold/day={name} cannot be read and was left out; make the report of that day again ({why})"
        for name, why in sorted(broken.items())
    ] + _without_deleted(there)
    write_json(aside / "report.json", content)
    builder.store.publish(aside, f"gold/{period.name}")
    return aside


def _without_deleted(there: Mapping[str, tuple[Path, bytes]]) -> list[str]:
    """Returns a sentence for each table that lacks days, because their tables were deleted when their time was over. The days
    are still in all other tables."""
    found = []
    for name in MERGED:
        days = sorted(
            day
            for day, (version, _) in there.items()
            if (version / f"{name}{DELETED}").exists() and not (version / name).exists()
        )
        if days:
            them = days[0] if len(days) == 1 else f"{counted(len(days), 'day')} up to {days[-1]}"
            found.append(
                f"Table {name}: without {them}; deleted, because a day's table is kept for a shorter time ([reports] keep)."
            )
    return found


def behind(store: Store, zone: str) -> list[Period]:
    """Returns the weeks and months that were made from other days than exist now, or were never made. A day that was
    deleted because of its age remains in the weeks and months made from it."""
    days = []
    for name in store.names("gold"):
        with contextlib.suppress(ValueError):  # a week, a month, or a foreign file
            days.append(date.fromisoformat(name.removeprefix("day=")))
    periods = dict.fromkeys(of(day) for day in days for of in (week_of, month_of))
    return [period for period in periods if _is_behind(store, period, zone)]


def _is_behind(store: Store, period: Period, zone: str) -> bool:
    there = _made(store, period, zone)
    version = store.current(f"gold/{period.name}")
    said = _said(version) if version is not None else None
    if said is None or version is None:
        return bool(there)
    made_of = json.loads(said).get("made_of")
    if isinstance(made_of, dict):
        return any(made_of.get(name) != report_fingerprint(text) for name, (_, text) in there.items())
    # An older version's, which did not tell.
    made_at = (version / "report.json").stat().st_mtime
    return any((day / "report.json").stat().st_mtime > made_at for day, _ in there.values())


def _made(store: Store, period: Period, zone: str) -> dict[str, tuple[Path, bytes]]:
    """Returns the directories and summaries of its days' reports; unreadable ones are left out."""
    found = {}
    for day in period.days(zone):
        version = store.current(f"gold/{day.name}")
        said = _said(version) if version is not None else None
        if version is not None and said is not None and tells(said):
            found[day.date.isoformat()] = version, said
    return found


def _said(version: Path) -> bytes | None:
    try:
        text = (version / "report.json").read_bytes()
        return text if isinstance(json.loads(text), dict) else None
    except (OSError, ValueError):
        return None


def _content(period: Period, zone: str, days: dict[str, bytes]) -> dict[str, Any]:
    all_days = [day.date.isoformat() for day in period.days(zone)]
    reports = [json.loads(text) for text in days.values()]
    unbalanced = [said["day"] for said in reports if said["balance"]["balances"] is False]
    unchecked = [said["day"] for said in reports if said["balance"]["balances"] is None]
    words = f"Of {len(days)} of {len(all_days)} days."
    if unbalanced:
        words += f" Not balanced: {', '.join(unbalanced)}."
    balances = False if unbalanced else None if unchecked else True
    return {
        "version": VERSION,
        "zone": zone,
        "days": sorted(days),
        "made_of": {name: report_fingerprint(text) for name, text in days.items()},
        "missing": sorted(set(all_days) - set(days)),
        "older": sorted(said["day"] for said in reports if said.get("version", 1) < VERSION),
        "words": words,
        "balance": {"balances": balances, "words": words, "unbalanced": unbalanced, "unchecked": unchecked},
        "damaged": [each for said in reports for each in said["damaged"]],
        "damaged_files": sum(said.get("damaged_files", len(said["damaged"])) for said in reports),
    }


def _days(name: str, versions: Sequence[Path]) -> pyarrow.Table | None:
    """Returns the rows of a table of these days, None if it does not exist. They have all columns that one of the days has,
    or that this version counts: days of an earlier version lack some, and there they are null."""
    tables = [table for version in versions if (table := read_table(version / name)) is not None]
    if not tables:
        return None
    days = pyarrow.concat_tables([table.replace_schema_metadata() for table in tables], promote_options="permissive")
    for column in ADDED.get(name, ()):
        if column not in days.column_names:
            days = days.append_column(column, pyarrow.nulls(days.num_rows, pyarrow.int64()))
    return days
