"""Messages and recipients are counted once each, as a plain count over all rows does it, however the rows are divided."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from appliance.pipeline.daily_tables import told_apart
from appliance.pipeline.daily_tables.told_apart import TRIED, hashes, tell_apart
from appliance.pipeline.days import Day
from appliance.pipeline.rows import schema_of
from appliance.pipeline.silver import Silver

DAY = Day(date(2026, 11, 20), "UTC")
Row = dict[str, Any]


def rows_of(rng: random.Random, count: int) -> list[Row]:
    """Attempts of few messages, so that there are many of each; some lie in front of the day or behind it."""
    rows = []
    for offset in range(count):
        message = rng.randrange(40)
        rows.append(
            {
                "lane": rng.choice(["journal", "incoming.0"]),
                "offset": offset,
                "part": rng.choice([0, 0, 0, 1]),
                "at": int((DAY.begin + rng.uniform(-100, 86_500)) * 1e6),
                "queue_id": f"0123456789{message:03}" + ("B1" if message % 7 == 0 else ""),
                "number": rng.randrange(3),
                "status": rng.choice([*TRIED, "expired", "deleted"]),
                "destination": rng.choice(["one", "two", "ä" * 30, "", None]),
                "provider": rng.choice(["a", "b", None]),
                "generation": rng.choice([0, 0, 1, 2]),
                "tried": rng.choice([True, True, False]),
            }
        )
    return rows


def written(directory: Path, rows: list[Row]) -> list[Silver]:
    """The rows as silver has them, in two halves."""
    schema = schema_of("attempt")
    for half in (True, False):
        place = directory / "rows" / "attempt" / f"delivered={str(half).lower()}"
        place.mkdir(parents=True)
        those = [row for row in rows if (row["status"] == "delivered") is half]
        table = pyarrow.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in those], schema)
        pyarrow.parquet.write_table(table, place / "part-0.parquet", row_group_size=70)
    (directory / "rows" / "attempt" / "_SUCCESS").touch()
    return [Silver("2026-11-20", directory, "", len(rows), frozenset({"attempt"}))]


def counted(rows: list[Row], later: told_apart.Later) -> tuple[dict[tuple[str, str], tuple[int, int]], bool]:
    """The same by sets."""
    messages: dict[tuple[str, str], set[str]] = defaultdict(set)
    others: dict[tuple[str, str], set[tuple[str, int]]] = defaultdict(set)
    ends: Counter[tuple[str, int]] = Counter()
    firsts: Counter[tuple[str, int]] = Counter()
    for row in rows:
        left_out, again = later.get((row["lane"], row["offset"], row["part"]), (False, False))
        if left_out or not DAY.begin * 1e6 <= row["at"] < DAY.end * 1e6:
            continue
        recipient = row["queue_id"], row["number"]
        ends[recipient] += row["status"] != "deferred"
        firsts[recipient] += row["tried"] and row["generation"] == 0 and not again
        for kind in ("destination", "provider"):
            name = kind, row[kind] or ""
            if row["tried"] and row["status"] in TRIED:
                if row["part"] == 0:
                    messages[name].add(row["queue_id"])
                if row["generation"] or row["status"] == "deferred" or again:
                    others[name].add(recipient)
    found = {name: (len(messages[name]), len(others[name])) for name in {*messages, *others}}
    return found, any(number > 1 for number in (*ends.values(), *firsts.values()))


def told(day: list[Silver], later: told_apart.Later) -> tuple[dict[tuple[str, str], tuple[int, int]], bool]:
    found = tell_apart(DAY, day, later)
    rows = found.counts.to_pylist()
    assert len({(row["kind"], row["name"]) for row in rows}) == len(rows)
    return {
        (row["kind"], row["name"]): (row["messages"], row["others"]) for row in rows if row["messages"] or row["others"]
    }, found.several


@pytest.mark.parametrize("at_once", [10, 100, 10_000])
@pytest.mark.parametrize("seed", range(4))
def test_the_counts_are_those_of_a_plain_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, at_once: int
) -> None:
    monkeypatch.setattr(told_apart, "ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(told_apart, "BATCH_ROWS", 37)
    rng = random.Random(seed)
    rows = rows_of(rng, 400)
    some = rng.sample(rows, 60)
    later = {(row["lane"], row["offset"], row["part"]): rng.choice([(True, False), (False, True)]) for row in some}
    day = written(tmp_path, rows)
    assert told(day, {}) == counted(rows, {})
    assert told(day, later) == counted(rows, later)


def test_a_recipient_that_ends_once_is_not_several(tmp_path: Path) -> None:
    rows = rows_of(random.Random(1), 1)
    rows[0] |= {"at": int(DAY.begin * 1e6), "status": "deferred", "generation": 0, "tried": True}
    rows.append({**rows[0], "offset": 2, "status": "delivered", "generation": 1})
    assert not tell_apart(DAY, written(tmp_path / "one", rows), {}).several
    rows.append({**rows[1], "offset": 3, "generation": 2})
    assert tell_apart(DAY, written(tmp_path / "two", rows), {}).several


def test_a_day_without_attempts_has_no_counts(tmp_path: Path) -> None:
    assert told(written(tmp_path, []), {}) == ({}, False)
    assert told([Silver("2026-11-20", tmp_path, "", 0, frozenset())], {}) == ({}, False)


def test_texts_have_the_same_bits_in_any_array_and_others_otherwise() -> None:
    rng = random.Random(2)
    texts = sorted({"".join(rng.choices("01AZ", k=rng.randrange(40))) for _ in range(3000)})
    found = dict(zip(texts, hashes(pyarrow.array(texts)).tolist(), strict=True))
    assert len(set(found.values())) == len(texts)
    rng.shuffle(texts)
    for each in (pyarrow.array(texts), pyarrow.array(["x", *texts])[1:], pyarrow.array(texts, pyarrow.large_string())):
        assert hashes(each).tolist() == [found[text] for text in texts]
    same = [text for text in texts if len(text) == 13]
    assert hashes(pyarrow.array(same)).tolist() == [found[text] for text in same]
    assert hashes(pyarrow.array([None, ""])).tolist() == [found.get("", hashes(pyarrow.array([""]))[0])] * 2


def test_bits_are_spread() -> None:
    texts = [f"{number:013}" for number in range(20_000)]
    bits = np.unpackbits(hashes(pyarrow.array(texts)).view(np.uint8)).reshape(-1, 64).mean(0)
    assert abs(bits - 0.5).max() < 0.02
