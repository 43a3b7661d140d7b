"""Checks the balance: accepted + queued at the start = delivered + bounced + returned without attempt + expired + deleted +
queued at the end, per recipient.

Two cuts, near the start and the end of the day, count queued mail; events are counted between exactly these. So
an event that was lost, or is there twice, shows: events alone would always agree with themselves.

Compared are two numbers: recipients, and the sum over messages of crc32(queue id) * recipients, which the cuts tell as
``checksum``. By the first alone, one message's lost acceptance and another's lost end would make up for each other; in
the second they do by chance, in one case of millions (decision 0014). Each side of it is below 2^63 up to 2^31 recipients
(crc32 is below 2^32); beyond, Spark's sum wraps, and so does what it is compared with.

The rows are also compared with what the exporter counted when it wrote them (``counters``).

The cuts are some seconds beside midnight, and on the first day of counting hours. So that a page shows one number for one
thing, the report has the amounts of the day, as its tables have them, and what was queued is moved from the cuts to the
beginning and the end of the day by the events in between (``Balance.of_day``). The difference of both sides stays the same.

When it does not balance, the messages whose events do not add up are named, with the positions of what is known of them
and the files that hold these, and the stretches of lanes that no file holds.

Keeps law: report-balances (docs/laws.md).
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from appliance.pipeline.counters import Altered, size
from appliance.pipeline.cuts import Cut, before, between
from appliance.pipeline.days import Day
from appliance.pipeline.events import EventFile, nothing
from appliance.pipeline.missing import Gap
from appliance.pipeline.shard_cuts import Ends, displaced
from appliance.pipeline.shards import label_of, shard_column, shard_number
from appliance.pipeline.silver import Silver, outcome, read
from mailcore.balance import Scope, difference, ends, terms

__all__ = ["BALANCED", "UNBALANCED", "UNCHECKED", "Balance", "ShardBalance", "Suspect", "added", "balance", "suspects"]

BALANCED, UNBALANCED, UNCHECKED = "balanced", "unbalanced", "unchecked"
SUSPECTS_MAX = 1_000  # named; how many there are is said
_QUEUED = StructType(
    [StructField("lane", StringType()), StructField("queue_id", StringType()), StructField("recipients", LongType())]
)
_UNSURE = "not finished; it may be queued"
_WRAPS = 1 << 64  # Spark's long, as the cuts tell it


@dataclass(frozen=True)
class Suspect:
    """A message whose events do not add up."""

    queue_id: str
    why: str
    accepted: int  # recipients
    ended: int
    events: tuple[str, ...]  # "journal 1234-5678 in dt=2026-11-20/journal.0.parquet"


@dataclass
class Balance:
    """The result of comparing what came in with what left and what is queued; amounts are recipients."""

    state: str
    words: str
    begin: float | None = None  # of the cuts
    end: float | None = None
    accepted: int = 0  # recipients, all of them; those added by an operator included
    delivered: int = 0
    bounced: int = 0
    returned: int = 0
    expired: int = 0
    deleted: int = 0
    queued_at_start: int | None = None
    queued_at_end: int | None = None
    counted_at_start: int | None = None  # queued at the cuts, as they say
    counted_at_end: int | None = None
    moved: int = 0  # queued at the first cut less queued when the day began, by the events in between
    repeated: int = 0  # outcomes of recipients that have one already
    difference: int | None = None  # arrivals less departures; above 0: recipients without an outcome
    message_by_message: bool | None = None  # whether the checksums agree; None: a cut of an older version lacks it
    suspects: list[Suspect] = field(default_factory=list)
    suspects_left_out: int = 0
    gaps: list[Gap] = field(default_factory=list)
    altered: list[Altered] | None = None  # counters that the files do not agree with; None: not compared
    shards: list[ShardBalance] = field(default_factory=list)  # of several, by number

    def of_day(self, totals: Mapping[str, Any], repeated: int) -> Balance:
        """Returns the balance with the amounts of the day's ``totals``. ``repeated``: outcomes that these leave out."""
        left = {name: int(totals[name]) for name in ends(Scope.REPORT)}
        amounts: dict[str, Any] = {"accepted": int(totals["recipients"]), **left, "repeated": repeated}
        if self.queued_at_start is None or self.difference is None:
            return replace(self, **amounts)
        start = self.queued_at_start - self.moved
        end = start + amounts["accepted"] - sum(left.values()) - repeated - self.difference
        if min(start, end) < 0:  # events from before the first count lack their beginning
            return self
        return replace(self, queued_at_start=start, queued_at_end=end, **amounts)

    def without(self, gaps: Sequence[Gap]) -> Balance:
        """Returns the balance given that the events in ``gaps`` are missing: with gaps it is never balanced."""
        if not gaps:
            return self
        words = self.words
        if self.state == BALANCED:
            lost = "a range of the log is" if len(gaps) == 1 else f"{len(gaps)} ranges of the log are"
            words = f"The report is incomplete: the totals balance, but {lost} missing from the event files."
        return replace(self, state=UNBALANCED, words=words, gaps=list(gaps))

    def compared(self, altered: Sequence[Altered] | None) -> Balance:
        """Returns the balance given what the comparison with the exporter's counters found; None: it was not possible."""
        if not altered:
            return replace(self, altered=None if altered is None else [])
        words = self.words
        if self.state == BALANCED:
            lanes = ", ".join(dict.fromkeys(each.lane for each in altered))
            words = f"The totals balance, but the event files of {lanes} do not contain the events that were exported."
        return replace(self, state=UNBALANCED, words=words, altered=list(altered))

    def told(self) -> dict[str, Any]:
        """Returns the balance as values for the report's JSON."""
        altered = None if self.altered is None else [vars(each) for each in self.altered]
        lists = {"suspects": [vars(each) for each in self.suspects], "gaps": [vars(each) for each in self.gaps]}
        told = vars(self) | lists | {"altered": altered}
        if self.shards:
            return told | {"shards": [each.told() for each in self.shards]}
        del told["shards"]
        return told

    def with_shards(self, shards: Sequence[ShardBalance]) -> Balance:
        """Returns the balance of all shards, given that of each. It is balanced only if each is, and unknown if one is."""
        unknown = [each.why for each in shards if each.why]
        red = [label_of(each.shard, each.name) for each in shards if each.balance.state == UNBALANCED]
        words, state = self.words, self.state
        if red:
            if state != UNBALANCED:
                words = "It does not balance."
            words, state = f"{words} Not balanced: {', '.join(red)}.", UNBALANCED
        found = replace(self, shards=list(shards))
        if unknown:
            unsaid = f"The balance is unknown: {'; '.join(unknown)}."
            words = f"{words} {unsaid}" if state == UNBALANCED else unsaid
            state = UNBALANCED if state == UNBALANCED else UNCHECKED
            numbers: dict[str, Any] = dict.fromkeys(
                ("queued_at_start", "queued_at_end", "counted_at_start", "counted_at_end", "difference")
            )
            found = replace(found, message_by_message=None, begin=None, end=None, moved=0, **numbers)
        return replace(found, state=state, words=words)


@dataclass(frozen=True)
class ShardBalance:
    """The balance of one of several shards; its amounts are those of the day, as in ``Balance.of_day``."""

    shard: int
    balance: Balance
    closed: bool = False  # it was empty at the end, and takes no mail any more
    why: str = ""  # its balance is unknown
    name: str = ""  # in the database that keeps it

    def told(self) -> dict[str, Any]:
        """Returns it as values for the report's JSON; gaps, counters and messages are among those of the whole."""
        which: dict[str, Any] = {"shard": self.shard, "closed": self.closed}
        if self.name:
            which["name"] = self.name
        if self.balance.state == UNCHECKED:  # not zero: its numbers are not known
            return {**which, "balances": None, "words": self.balance.words}
        left_out = ("suspects", "suspects_left_out", "gaps", "altered", "shards")
        told = {name: value for name, value in vars(self.balance).items() if name not in left_out}
        balances = {BALANCED: True, UNBALANCED: False}.get(self.balance.state)
        return {**which, "balances": balances, **told}

    def row(self) -> dict[str, Any]:
        """Returns it as a row of the table of shards; numbers that are not known are null."""
        told = self.told()
        numbers = {term.name: told.get(term.name) for term in terms(Scope.REPORT)}
        return {"shard": self.name or str(self.shard), "number": self.shard, **numbers, "balance": told["words"]}

    def compared(self, gaps: Sequence[Gap], altered: Sequence[Altered] | None) -> ShardBalance:
        """Returns it, given what is missing of this shard and the counters that its files do not agree with."""
        own = [each for each in gaps if shard_number(each.lane) == self.shard]
        differing = None if altered is None else [each for each in altered if shard_number(each.lane) == self.shard]
        if self.balance.state == UNCHECKED:
            return self
        return replace(self, balance=self.balance.without(own).compared(differing))


def balance(
    session: SparkSession,
    silver: Sequence[Silver],
    first: Cut | None,
    last: Cut | None,
    day: Day | None = None,
    shards: Sequence[Ends] = (),
) -> Balance:
    """Returns the balance of the events between the cuts; ``silver``: the UTC days that contain them, and the ``day``.

    ``shards``: of several, which the cuts are of; then the balance has that of each.
    """
    if first is None or last is None or first is last:
        which = "the start and the end" if first is last else "the start" if first is None else "the end"
        found = Balance(UNCHECKED, f"The queue was not counted at {which} of the day, so the balance is unknown.")
        return replace(found, shards=[_of_shard((), each) for each in shards])
    inside = between(first, last)
    checked = first.checksum is not None and last.checksum is not None
    beside = _beside(inside, before(first, last), day)

    today = _today(day) if shards and day is not None else F.lit(False)
    misplaced = displaced(shards)
    near = inside | (beside != 0) | today

    def counted(number: Column) -> list[Column]:
        return [*_counted(number, inside, beside, today, checked), F.count_if(misplaced).alias("displaced")]

    of = (shard_column() if shards else F.lit(0)).alias("shard")
    entered = F.lit(None).cast("string").alias("outcome")
    ended = read(session, silver, "attempt").where(near & (F.col("status") != "deferred"))
    both = read(session, silver, "accepted").where(near).groupBy(of, entered).agg(*counted(size(F.col("recipients"))))
    both = both.unionByName(ended.groupBy(of, outcome().alias("outcome")).agg(*counted(F.lit(1))))
    if any("order" in each.kinds for each in silver):
        later = added(read(session, silver, "order").where(near))
        both = both.unionByName(later.groupBy(of, entered).agg(*counted(F.col("n"))))
    rows = both.collect()
    found = _compared(rows, first, last)
    for each in shards:
        own = [row for row in rows if row["shard"] == each.shard]
        found.shards.append(_of_shard(own, each))
    return found


def _of_shard(rows: Sequence[Row], pair: Ends) -> ShardBalance:
    """Returns the balance of one of several shards, with the amounts of the day."""
    amounts = _amounts(rows, "today", 0, 0)
    del amounts["queued_at_start"], amounts["queued_at_end"]
    if pair.first is None or pair.last is None:
        return _unknown(pair, pair.why)
    found = _compared(rows, pair.first, pair.last)
    if found.state == BALANCED and (many := sum(row["displaced"] for row in rows)):
        events = "1 event is" if many == 1 else f"{many} events are"
        return _unknown(pair, f"{events} on the wrong side of a count of {pair.label}: it was not taken when it says")
    start = pair.first.recipients - found.moved
    left = sum(amount for name, amount in amounts.items() if name != "accepted")
    end = start + amounts["accepted"] - left - (found.difference or 0)
    if min(start, end) < 0:
        return ShardBalance(pair.shard, found, pair.closed, name=pair.name)
    found = replace(found, queued_at_start=start, queued_at_end=end, **amounts)
    return ShardBalance(pair.shard, found, pair.closed, name=pair.name)


def _unknown(pair: Ends, why: str) -> ShardBalance:
    return ShardBalance(pair.shard, Balance(UNCHECKED, f"The balance is unknown: {why}."), pair.closed, why, pair.name)


def _amounts(rows: Sequence[Row], measure: str, queued_at_start: int, queued_at_end: int) -> dict[str, Any]:
    """Returns the terms of the equation, counted in recipients or as checksums."""
    amounts = {"queued_at_start": queued_at_start, "accepted": 0, **dict.fromkeys(ends(Scope.REPORT), 0)}
    for row in rows:
        name = "accepted" if row["outcome"] is None else row["outcome"]
        amounts[name] = amounts.get(name, 0) + row[measure]
    return {**amounts, "queued_at_end": queued_at_end}


def _compared(rows: Sequence[Row], first: Cut, last: Cut) -> Balance:
    """Returns the balance of the events between two counts."""
    recipients = _amounts(rows, "recipients", first.recipients, last.recipients)
    missing = difference(Scope.REPORT, recipients)
    by_message = None
    if first.checksum is not None and last.checksum is not None:
        checksums = _amounts(rows, "checksum", first.checksum, last.checksum)
        by_message = difference(Scope.REPORT, checksums) % _WRAPS == 0
    return Balance(
        state=BALANCED if missing == 0 and by_message is not False else UNBALANCED,
        words=_words(missing, by_message),
        begin=first.at,
        end=last.at,
        difference=missing,
        message_by_message=by_message,
        counted_at_start=first.recipients,
        counted_at_end=last.recipients,
        moved=sum(row["beside"] if row["outcome"] is None else -row["beside"] for row in rows),
        **recipients,
    )


def _today(day: Day) -> Column:
    at = F.unix_micros("at")
    return (at >= int(day.begin * 1e6)) & (at < int(day.end * 1e6))


def _beside(inside: Column, earlier: Column, day: Day | None) -> Column:
    """Returns 1 for an event of the day that lies before the first cut, -1 for one between the cuts from before the day,
    else 0."""
    if day is None:
        return F.lit(0)
    at = F.unix_micros("at")
    since, until = at >= int(day.begin * 1e6), at < int(day.end * 1e6)
    return F.when(since & until & earlier, 1).when(inside & ~since, -1).otherwise(0)


def _counted(recipients: Column, inside: Column, beside: Column, today: Column, checked: bool) -> list[Column]:
    """Returns the columns with the number of recipients and their ``checksum`` between the cuts, as cuts have it, and the
    numbers ``beside`` the first cut and of ``today``."""
    own = F.when(inside, recipients).otherwise(0)
    checksum = F.sum(F.crc32("queue_id") * own) if checked else F.lit(0)
    sums = {"recipients": F.sum(own), "checksum": checksum, "beside": F.sum(beside * recipients)}
    sums["today"] = F.sum(F.when(today, recipients).otherwise(0))
    return [F.coalesce(each, F.lit(0)).cast("long").alias(name) for name, each in sums.items()]


def _words(difference: int, by_message: bool | None) -> str:
    if difference == 0 and by_message is None:
        return "The totals balance. A check by message is not possible: the queue was counted by an older version."
    if difference == 0 and not by_message:
        return "It does not balance: the totals agree, but not for the same messages."
    if difference == 0:
        return "It balances."
    many = "recipient" if abs(difference) == 1 else "recipients"
    if difference > 0:
        return f"It does not balance: {difference} accepted {many} neither ended nor are queued."
    return f"It does not balance: {-difference} {many} ended or are queued without having been accepted."


def added(orders: DataFrame) -> DataFrame:
    """Returns the orders that added recipients to messages; column ``n`` is the number of recipients."""
    listed = F.from_json("arguments", "recipients array<string>")["recipients"]
    return orders.where(F.col("operation") == "add_recipients").withColumn("n", size(listed))


def suspects(
    session: SparkSession, silver: Sequence[Silver], first: Cut, last: Cut, files: Sequence[EventFile]
) -> tuple[list[Suspect], int]:
    """Returns the messages whose events do not add up, at most SUSPECTS_MAX, and the number of further ones.
    ``silver``, ``files``: as far back as there are any, so that all events of a message are read; a message that
    arrived before them is not suspected because its earlier events are missing."""
    queued = nothing(session, _QUEUED)
    if last.ids is not None and all(each.exists() for each in (last.ids, *last.more_ids)):
        queued = session.read.schema(_QUEUED).json([str(each) for each in (last.ids, *last.more_ids)])
    judged = _judged(_by_message(session, silver, first, last), queued, told=last.ids is not None)
    rows = judged.orderBy("sure", "queue_id").limit(SUSPECTS_MAX).collect()
    more = judged.count() - len(rows) if len(rows) == SUSPECTS_MAX else 0
    return [_suspect(row.asDict(recursive=True), files) for row in rows], more


def _by_message(session: SparkSession, silver: Sequence[Silver], first: Cut, last: Cut) -> DataFrame:
    """Returns, by queue id, the numbers of recipients accepted, added and ended, whether the message is finished, and
    the places of its events."""
    nothing, one = F.lit(0).cast("long"), F.lit(1).cast("long")
    sides = {
        "accepted": (read(session, silver, "accepted"), size(F.col("recipients")).cast("long")),
        "added": (added(read(session, silver, "order")), F.col("n").cast("long")),
        "ended": (read(session, silver, "attempt").where(F.col("status") != "deferred"), one),
        "finished": (read(session, silver, "finished"), one),
        "replaced": (read(session, silver, "replaced"), one),
    }
    # Only what lies before the last cut is counted; what lies behind the first one is what the balance is of.
    before = Cut(at=0.0, messages=0, recipients=0)
    rows: DataFrame | None = None
    for name, (events, number) in sides.items():
        each = events.where(between(before, last)).select(
            "queue_id",
            "lane",
            "offset",
            (F.col("number") if name == "ended" else F.lit(None).cast("int")).alias("number"),
            F.when(between(first, last), 1).otherwise(0).alias("here"),
            *(number.alias(name) if count == name else nothing.alias(count) for count in sides),
        )
        rows = each if rows is None else rows.unionByName(each)
    assert rows is not None
    return rows.groupBy("queue_id").agg(
        *(F.sum(count).alias(count) for count in sides),
        F.countDistinct("number").alias("numbers"),
        F.max("here").alias("here"),
        F.first(shard_column()).alias("shard"),
        F.array_distinct(F.collect_list(F.struct("lane", "offset"))).alias("events"),
    )


def _judged(messages: DataFrame, queued: DataFrame, told: bool) -> DataFrame:
    """Returns the messages with an event between the cuts that do not add up, and why. ``told``: ``queued`` contains
    all queued messages."""
    # The ids of one shard are in the order of arrival, those of two are not.
    oldest = messages.where("accepted > 0").groupBy("shard").agg(F.min("queue_id").alias("oldest"))
    left = queued.groupBy("queue_id").agg(F.sum("recipients").alias("queued"))
    known = F.col("accepted") > 0
    came = F.col("accepted") + F.col("added")
    without = (
        came - F.col("ended") - F.coalesce("queued", F.lit(0))
    )  # recipients with neither an end nor a place in a lane
    why = (
        F.when(F.col("ended") > F.col("numbers"), "a recipient has two outcomes")
        .when(~known & (F.col("queue_id") >= F.col("oldest")), "no event of its acceptance")
        .when(known & (F.col("ended") > came), "more recipients have an outcome than were accepted")
        .when(known & (F.col("finished") > 0) & (without > 0), "finished, but not all recipients have an outcome")
    )
    if told:
        why = why.when(known & (without > 0), "neither finished nor queued")
        why = why.when(known & (without < 0), "recipients with an outcome are still queued")
    else:  # it was never put back into a lane: it has just arrived, or its end is missing
        unsure = known & (F.col("finished") == 0) & (F.col("replaced") == 0) & (without > 0)
        why = why.when(unsure, _UNSURE)
    judged = messages.join(left, on="queue_id", how="left")
    judged = judged.join(F.broadcast(oldest), on="shard", how="left").withColumn("why", why)
    named = judged.where(F.col("why").isNotNull() & (F.col("here") == 1))
    return named.withColumn("came", came).withColumn("sure", F.when(F.col("why") == _UNSURE, 1).otherwise(0))


def _suspect(row: dict[str, Any], files: Sequence[EventFile]) -> Suspect:
    lanes: dict[str, list[int]] = {}
    for each in row["events"]:
        lanes.setdefault(each["lane"], []).append(each["offset"])
    places = []
    for lane, offsets in sorted(lanes.items()):
        where = f"{min(offsets)}" if min(offsets) == max(offsets) else f"{min(offsets)}-{max(offsets)}"
        held = sorted({name for offset in offsets if (name := _holding(files, lane, offset))})
        places.append(f"{lane} {where} in {', '.join(held) or 'no file'}")
    return Suspect(row["queue_id"], row["why"], row["came"], row["ended"], tuple(places))


def _holding(files: Sequence[EventFile], lane: str, offset: int) -> str:
    own = sorted((each for each in files if each.lane == lane), key=lambda each: (each.begin, each.dt))
    index = bisect.bisect_right([each.begin for each in own], offset)
    return own[index - 1].name if index else ""
