"""The events of one day of the portal's zone, by kind: what every table of the day is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from appliance.pipeline.days import HOUR_S, Day
from appliance.pipeline.silver import Silver, read

__all__ = ["Facts"]


@dataclass(frozen=True)
class Facts:
    """The events of one day, for all of its tables."""

    session: SparkSession
    day: Day
    silver: Sequence[Silver]  # the UTC days that hold its events

    def of(self, kind: str, delivered: bool | None = None) -> DataFrame:
        """Returns the day's events of one kind. ``delivered``: only attempts that delivered, or only those that did
        not; None: all."""
        events = read(self.session, self.silver, kind, delivered)
        return events.where((F.col("at") >= _instant(self.day.begin)) & (F.col("at") < _instant(self.day.end)))

    @cached_property
    def accepted(self) -> DataFrame:
        """Returns the accepted messages of the day."""
        return self.of("accepted")

    @cached_property
    def attempts(self) -> DataFrame:
        """Returns the delivery attempts of the day."""
        return self.of("attempt")

    def hour(self) -> Column:
        """Returns the hour of the day as a column, counted from the day's beginning: 0 to 22, 23 or 24."""
        return F.floor((F.unix_micros("at") - int(self.day.begin * 1e6)) / (HOUR_S * 1_000_000)).cast("int")


def _instant(seconds: float) -> Column:
    return F.timestamp_micros(F.lit(int(seconds * 1e6)))
