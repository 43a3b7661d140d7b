"""Ways to break what selects messages."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
    Mutation(
        "active messages are one class in the ages",
        "mailcore/lookup/ages.py",
        "            self._by_state[MailState.ACTIVE] -= 1\n",
        "            continue\n",
        "tests/control/test_ages.py -k active",
    ),
    Mutation(
        "a what-if does not name large messages",
        "mailcore/control/whatif.py",
        "        *whatif_unknown.sizes(gathered.lanes, gathered.tried),\n",
        "",
        "tests/control/test_whatif.py -k large",
    ),
    Mutation(
        "a condition with an empty value is left out of the filter",
        "mailcore/control/protocol/operation.py",
        "        if value is not UNSET and name in CONDITIONS and (error := refusal(name, value)):\n",
        "        if value and name in CONDITIONS and (error := refusal(name, value)):\n",
        "tests/control/test_filters.py -k limits_nothing",
    ),
    Mutation(
        "a text of blanks is a pattern",
        "mailcore/lookup/pattern.py",
        "    if not text or text.isspace():\n",
        "    if not text:\n",
        "tests/control/test_filters.py -k without_a_value",
    ),
    Mutation(
        "addresses compare without regard to any case",
        "mailcore/routing/address.py",
        "    return text.lower() if text.isascii() else text.translate(_LOWER)\n",
        "    return text.casefold()\n",
        "tests/lookup/test_pattern.py",
    ),
    Mutation(
        "domains compare as they are written",
        "mailcore/routing/address.py",
        '        return a_labels(domain).removesuffix(".")\n',
        "        return ascii_lower(domain)\n",
        "tests/lookup/test_pattern.py",
    ),
    Mutation(
        "a backslash in a pattern is skipped",
        "mailcore/lookup/pattern.py",
        "            parsed.append(escaped)\n",
        '            parsed.append({"*": _ANY, "?": _ONE}.get(escaped, escaped))\n',
        "tests/lookup/test_pattern.py",
    ),
    Mutation(
        "without the manager its lanes are read behind what counts",
        "mailcore/lookup/last_known.py",
        "            end = None if is_incoming(name) or positions is None else at.end\n",
        "            end = None\n",
        "tests/lookup/test_browse.py -k just_before_the_manager_stopped",
    ),
    Mutation(
        "a message moved by the last checkpoint counts twice without its mark",
        "mailcore/lookup/last_known.py",
        "            replaced = self._moved_last()\n",
        "            replaced = {}\n",
        "tests/lookup/test_browse.py -k just_before_the_manager_stopped",
    ),
    Mutation(
        "a move to the hold lane holds no recipient in the past",
        "mailcore/lookup/past_message.py",
        "            if kind is not AsideKind.HELD:\n",
        "            if kind is AsideKind.HELD:\n",
        "tests/lookup/test_past_message.py",
    ),
    Mutation(
        "a queue with messages missing is called complete",
        "mailcore/events/read/past_queue.py",
        "        return self.count is not None and self.found == self.expected and same_sum\n",
        "        return self.count is not None\n",
        "tests/events/test_past_queue.py -k missing",
    ),
    Mutation(
        "rows that were exported twice count twice",
        "mailcore/events/read/past_queue.py",
        "        return min((start for start in self._starts.get(file.lane, ()) if start > file.start), default=1 << 62)\n",
        "        return 1 << 62\n",
        "tests/events/test_past_queue.py -k twice",
    ),
    Mutation(
        "lines of one microsecond are given twice",
        "mailcore/lookup/event_lines.py",
        "        inside += [each for each in timed if each[0] == place.at_us][: -place.given]\n",
        "        inside += [each for each in timed if each[0] == place.at_us]\n",
        "tests/lookup/test_event_lines.py",
    ),
]
