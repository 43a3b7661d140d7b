"""Ways to break what makes a report red, or keeps it green."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
    Mutation(
        "restart positions name a journal segment that is not on disk",
        "mailcore/queue/checkpoint.py",
        "        journal_end = queue.journal.recorded_end\n",
        "        journal_end = queue.journal.end\n",
        "tests/appliance/pipeline/test_missing.py -k idled",
    ),
    Mutation(
        "a lane whose first segment could not be written lacks its beginning",
        "mailcore/events/write/export.py",
        "        if bases and at.at < bases[0] and not _nothing_before(reader, at.at):\n",
        "        if bases and at.at < bases[0]:\n",
        "tests/events/test_export.py -k first_segment",
    ),
    Mutation(
        "the exported rows are not counted",
        "mailcore/events/write/export.py",
        "at.since, add(at.counts, written.counts))\n",
        "at.since, at.counts)\n",
        "tests/appliance/pipeline/test_altered.py -k agrees",
    ),
    Mutation(
        "a row dropped and another doubled make up for each other",
        "appliance/pipeline/counters.py",
        "        for name in COUNTERS:\n",
        "        for name in COUNTERS[:-1]:\n",
        "tests/appliance/pipeline/test_altered.py -k twice",
    ),
    Mutation(
        "attempts of an older version are compared by routes that it did not count",
        "appliance/pipeline/counters.py",
        '            if name == "routes" and not _all_routed(before, then):\n',
        "            if False:\n",
        "tests/appliance/pipeline/test_altered.py -k older_version_exported",
    ),
    Mutation(
        "a file copied to another day counts again",
        "appliance/pipeline/events.py",
        "    if days_of_rows := _days(path, footer) - {dt}:\n",
        "    if days_of_rows := _days(path, footer) - _days(path, footer):\n",
        "tests/appliance/pipeline/test_altered.py -k copied",
    ),
    Mutation(
        "a damaged file is there as long as its name is",
        "appliance/pipeline/missing.py",
        "            if (each.shard, day, each.path.name) in good:\n",
        '            if (events / f"dt={day}" / each.path.name).exists():\n',
        "tests/appliance/pipeline/test_altered.py -k midnight",
    ),
    Mutation(
        "a file among those of another shard counts",
        "appliance/pipeline/events.py",
        '    if int(said.get("waypost.shard", 0)) != (shard if said_shard is None else said_shard):\n',
        "    if False:\n",
        "tests/appliance/pipeline/test_shards.py -k turns_the_day_red",
    ),
    Mutation(
        "a day is green although one of its shards is red",
        "appliance/pipeline/balance.py",
        "        if red:\n",
        "        if red and False:\n",
        "tests/appliance/pipeline/test_shards.py -k turns_the_day_red",
    ),
    Mutation(
        "a shard that was not counted is left out",
        "appliance/pipeline/balance.py",
        "        unknown = [each.why for each in shards if each.why]\n",
        "        unknown = []\n",
        "tests/appliance/pipeline/test_shards.py -k not_counted",
    ),
    Mutation(
        "a shard whose events are gone is forgotten",
        "appliance/pipeline/build_day.py",
        "        gone = sorted((shard, name) for shard, name in expected.items() if shard not in cuts)\n",
        "        gone = []\n",
        "tests/appliance/pipeline/test_shards.py -k gone_is_missed",
    ),
    Mutation(
        "a count that was not taken when it says is believed",
        "appliance/pipeline/balance.py",
        '(many := sum(row["displaced"] for row in rows)):\n',
        "(many := 0):\n",
        "tests/appliance/pipeline/test_shards.py -k another_time",
    ),
    Mutation(
        "the lanes of two shards have one name",
        "appliance/pipeline/rows.py",
        "    if not file.shard:\n",
        "    if True:\n",
        "tests/appliance/pipeline/test_shards.py -k balance_together",
    ),
    Mutation(
        "all recipients of a transaction have the first one's domain",
        "mailcore/events/rows.py",
        "            domain = delivery.recipient_domain(part)\n",
        "            domain = delivery.recipient_domain(0)\n",
        "tests/events/test_rows.py -k labels",
    ),
    Mutation(
        "a field whose name only begins like the tag's is the tag",
        "mailcore/receiver/data.py",
        'if colon and name.rstrip(b" \\t").lower() == self._tag_header:',
        'if colon and name.rstrip(b" \\t").lower()[:1] == self._tag_header[:1]:',
        "tests/receiver/test_data.py",
    ),
    Mutation(
        "a dead destination is sampled only while it has mail",
        "mailcore/events/write/windows.py",
        "            if row.queued or row.busy or row.dead_until:\n",
        "            if row.queued or row.busy:\n",
        "tests/events/test_exporter.py -k dead",
    ),
    Mutation(
        "mail put off for a dead destination counts as tried",
        "appliance/pipeline/daily_tables/labels.py",
        '        _one(tried).alias("tried"),\n',
        '        _one(F.lit(True)).alias("tried"),\n',
        "tests/appliance/pipeline/test_labels.py",
    ),
    Mutation(
        "a second outcome of a recipient counts, too",
        "appliance/pipeline/daily_tables/facts.py",
        '        counted = known.where(~F.coalesce("repeated", F.lit(False)))\n',
        "        counted = known\n",
        "tests/appliance/pipeline/test_recipients_once.py -k two_outcomes",
    ),
    Mutation(
        "a recipient that is tried again after a kill counts as two",
        "appliance/pipeline/daily_tables/cells.py",
        'isin("delivered", "bounced") & ~F.col("again")\n',
        'isin("delivered", "bounced")\n',
        "tests/appliance/pipeline/test_recipients_once.py -k counts_once",
    ),
    Mutation(
        "the schedules stay in the zone that they are in",
        "appliance/reports/tasks.py",
        "    schedules.follow(zone)\n",
        "",
        "tests/appliance/reports/test_schedule_zone.py -k night",
    ),
    Mutation(
        "a recipient with several attempts counts for each of them",
        "appliance/pipeline/daily_tables/told_apart.py",
        "    is_new[1:] = keys[1:] != keys[:-1]\n",
        "",
        "tests/appliance/pipeline/test_told_apart.py",
    ),
    Mutation(
        "recipients with two outcomes are found in one share of the messages only",
        "appliance/pipeline/daily_tables/told_apart.py",
        "        several |= _any_twice",
        "        several = _any_twice",
        "tests/appliance/pipeline/test_told_apart.py",
    ),
]
