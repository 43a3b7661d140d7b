"""The events of one day of the portal's zone, by kind: what every table of the day is made from.

Each recipient counts once. After a kill the core tries the mail that was in delivery again, so a recipient may have several
attempts in the same pass; only the first of them is its first attempt. Should a recipient have a second outcome, which the
core's log excludes and a restored queue may bring about, then the first one in the log counts, as for the core itself, and
the others are in no table (``repeated``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from appliance.pipeline.balance import added
from appliance.pipeline.daily_tables.told_apart import Later
from appliance.pipeline.days import HOUR_S, Day
from appliance.pipeline.silver import IDENTITY, Silver, outcome, read

__all__ = ["Facts"]


@dataclass
class Facts:
    """The events of one day, for all of its tables."""

    session: SparkSession
    day: Day
    silver: Sequence[Silver]  # the UTC days that hold its events
    later: Later = field(default_factory=dict, repr=False)  # rows that count otherwise; set by ``tell_apart``
    repeated: int = 0  # outcomes that no table counts, because their recipients have one already
    _later: DataFrame | None = field(
        default=None, repr=False
    )  # rows of recipients that have several: which to leave out

    def of(self, kind: str, delivered: bool | None = None) -> DataFrame:
        """Returns the day's events of one kind. ``delivered``: only attempts that delivered, or only those that did
        not; None: all. Attempts have ``outcome``, and ``again``: their recipient was tried before in this pass."""
        events = read(self.session, self.silver, kind, delivered)
        events = events.where((F.col("at") >= _instant(self.day.begin)) & (F.col("at") < _instant(self.day.end)))
        if kind != "attempt":
            return events
        if self._later is None:
            return events.withColumns({"again": F.lit(False), "outcome": outcome()})
        known = events.join(self._later, on=[*IDENTITY], how="left")
        counted = known.where(~F.coalesce("repeated", F.lit(False)))
        return counted.withColumns({"again": F.coalesce("again", F.lit(False)), "outcome": outcome()})

    def has(self, kind: str) -> bool:
        """Returns whether there may be events of this kind."""
        return any(kind in each.kinds for each in self.silver)

    @cached_property
    def accepted(self) -> DataFrame:
        """Returns the accepted messages of the day."""
        return self.of("accepted")

    @cached_property
    def added(self) -> DataFrame:
        """Returns the recipients that operators added on the day, ``n`` with each order."""
        return added(self.of("order"))

    @cached_property
    def attempts(self) -> DataFrame:
        """Returns the delivery attempts of the day."""
        return self.of("attempt")

    def hour(self) -> Column:
        """Returns the hour of the day as a column, counted from the day's beginning: 0 to 22, 23 or 24."""
        return F.floor((F.unix_micros("at") - int(self.day.begin * 1e6)) / (HOUR_S * 1_000_000)).cast("int")

    def _several(self) -> DataFrame:
        """Returns the recipients (hash of the message, number) that have several outcomes, or several attempts in the first
        pass of their message. Most days have none."""
        firsts = self.attempts.groupBy(F.xxhash64("queue_id").alias("message"), "number").agg(
            F.count_if(_ended()).alias("ends"), F.count_if(_first()).alias("firsts")
        )
        return firsts.where("ends > 1 OR firsts > 1").select("message", "number")

    def tell_apart(self) -> None:
        """Marks the rows of these recipients, so that each recipient counts once in all tables made from then on."""
        ended, first = _ended(), _first()
        several = self._several()
        theirs = self.attempts.withColumn("message", F.xxhash64("queue_id")).join(several, on=["message", "number"])
        place = Window.partitionBy("queue_id", "number").orderBy(*IDENTITY)
        before = place.rowsBetween(Window.unboundedPreceding, -1)

        def had(condition: Column) -> Column:
            return F.coalesce(F.max(condition).over(before), F.lit(False))

        later = theirs.select(*IDENTITY, (ended & had(ended)).alias("repeated"), (first & had(first)).alias("again"))
        self._later = later.where("repeated OR again").cache()
        rows = self._later.collect()
        self.later = {(row.lane, row.offset, row.part): (row.repeated, row.again) for row in rows}
        self.repeated = sum(repeated for repeated, _ in self.later.values())
        self.__dict__.pop("attempts", None)

    def forget(self) -> None:
        """Frees what ``tell_apart`` keeps in memory."""
        if self._later is not None:
            self._later.unpersist()


def _ended() -> Column:
    return F.col("status") != "deferred"


def _first() -> Column:
    return F.col("tried") & (F.col("generation") == 0)


def _instant(seconds: float) -> Column:
    return F.timestamp_micros(F.lit(int(seconds * 1e6)))
