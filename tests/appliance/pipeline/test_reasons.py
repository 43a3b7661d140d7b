"""Replies folded: what differs between messages goes, what says why stays."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from appliance.pipeline.daily_tables.reasons import folded

FOLDED = {
    "host 192.0.2.1[192.0.2.1] said: 550 5.1.1 <a@x.example>: no user": "host <ip> said: 550 5.1.1 <address>: no user",
    "host mx.example[192.0.2.1] said: 452 try in 300 s": "host mx.example<ip> said: 452 try in <n> s",
    "host mx.example[192.0.2.1] said: 550-5.7.1 id 77": "host mx.example<ip> said: 550-5.7.1 id <n>",
    "host mx.example[192.0.2.1] said: 1234 5.1.1": "host mx.example<ip> said: <n> 5.1.1",
    "451 4.3.0 try again in 120 seconds": "451 4.3.0 try again in <n> seconds",
    "connection with 192.0.2.1:25 lost after 17 s": "connection with <ip>:<n> lost after <n> s",
}


def test_replies_are_folded_and_keep_their_codes(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(reply,) for reply in FOLDED], "reply string")
    told = {
        row["reply"]: row["folded"] for row in rows.select("reply", folded(F.col("reply")).alias("folded")).collect()
    }
    assert told == FOLDED
