"""Bugs in the report pipeline that the recount by DuckDB must name, each with the tables in which it shows.

They run over one recorded day (``tests/end_to_end/test_recount_mutations.py``): a mutation costs a report and no day of mail.
"""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
    Mutation(
        "a join keeps only destinations that were asked",
        "appliance/pipeline/daily_tables/cells.py",
        '    at = pc.index_in(names[key], value_set=counted["name"].combine_chunks())\n',
        '    at = pc.index_in(names[key], value_set=counted["name"].combine_chunks())\n'
        "    names, at = names.filter(pc.is_valid(at)), at.drop_null()\n",
        "destinations",
    ),
    Mutation(
        "a filter drops deferred recipients",
        "appliance/pipeline/daily_tables/facts.py",
        '        return counted.withColumns({"again": F.coalesce("again", F.lit(False)), "outcome": outcome()})\n',
        '        return counted.withColumns({"again": F.coalesce("again", F.lit(False)), "outcome": outcome()}).where(\n'
        "            \"outcome <> 'deferred'\"\n        )\n",
        "totals destinations reasons hours",
    ),
    Mutation(
        "a day begins an hour late",
        "appliance/pipeline/days.py",
        "        return datetime.combine(self.date, time(0), ZoneInfo(self.zone)).timestamp()\n",
        "        return datetime.combine(self.date, time(1), ZoneInfo(self.zone)).timestamp()\n",
        "totals hours",
    ),
    Mutation(
        "a recipient that is asked for again after a kill is counted twice",
        "appliance/pipeline/daily_tables/cells.py",
        'isin("delivered", "bounced") & ~F.col("again")\n',
        'isin("delivered", "bounced")\n',
        "destinations providers",
    ),
    Mutation(
        "what was put off without asking counts as an attempt",
        "appliance/pipeline/daily_tables/cells.py",
        "    tried = pc.is_in(outcome, value_set=pyarrow.array(TRIED))\n",
        "    tried = pc.is_in(outcome, value_set=pyarrow.array(OUTCOMES))\n",
        "totals destinations",
    ),
]
