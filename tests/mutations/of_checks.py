"""Deliberate breaks of what receivers ask before they take mail, of header checks, and of reports about TLS."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

GREY, GREY_TESTS = "mailcore/receiver/greylist.py", "tests/receiver/test_greylist.py"
LISTS, LISTS_TESTS = "mailcore/receiver/dns_lists.py", "tests/receiver/test_dns_lists.py"
VERIFY, VERIFY_TESTS = "mailcore/receiver/verification.py", "tests/receiver/test_verification.py"
CHECKS, CHECKS_TESTS = "mailcore/rewriting/header_checks.py", "tests/rewriting/test_header_checks.py"
SECTION, MISSING_TESTS = "mailcore/rewriting/header_section.py", "tests/rewriting/test_missing_fields.py"
SENDING, SENDING_TESTS = "mailcore/tlsrpt/sending.py", "tests/tlsrpt/test_sending.py"

MUTATIONS = [
    Mutation(
        "a greylisted retry that comes at once is accepted",
        GREY,
        "                if left > 0:\n",
        "                if left > settings.delay_s:\n",
        f"{GREY_TESTS} -k after_the_delay",
    ),
    Mutation(
        "a sender is greylisted for ever",
        GREY,
        "            if not passed and now - first <= settings.retry_window_s:\n",
        "            if not passed and now - first <= settings.delay_s / 2:\n",
        f"{GREY_TESTS} -k after_the_delay",
    ),
    Mutation(
        "a greylist that is full puts all mail off",
        GREY,
        "                self._full_until = now + FULL_S\n",
        "                self._full_until = now\n",
        f"{GREY_TESTS} -k full_of_new",
    ),
    Mutation(
        "one network fills the greylist",
        GREY,
        "if self._waiting(database, network, now) >= min(NETWORK_WAITING_MAX, settings.entries_max // NETWORK_SHARE):\n",
        "if self._waiting(database, network, now) < 0:\n",
        f"{GREY_TESTS} -k neither_fills",
    ),
    Mutation(
        "a flood erases what the greylist accepted",
        GREY,
        '        if trim(database, "grey", ("triplet",), "at", settings.entries_max - passed, "passed = 0"):\n',
        '        if trim(database, "grey", ("triplet",), "at", settings.entries_max):\n',
        f"{GREY_TESTS} -k many_networks",
    ),
    Mutation(
        "a list that refuses our queries lists all clients",
        "mailcore/config/dnsbl.py",
        "    if answer == _NEVER or answer in _REFUSED:\n",
        "    if answer == _NEVER:\n",
        f"{LISTS_TESTS} -k does_not_work",
    ),
    Mutation(
        "a list that was shut down lists all clients",
        LISTS,
        "            if self._tested.get(domain, (0.0, False))[1]:\n",
        "            if domain not in self._lists:\n",
        f"{LISTS_TESTS} -k shut_down",
    ),
    Mutation(
        "only the last list counts",
        LISTS,
        "            score += weight\n",
        "            score = weight\n",
        f"{LISTS_TESTS} -k weights",
    ),
    Mutation(
        "the clients that are looked up are not bounded",
        LISTS,
        "        if len(self._asking) >= self._settings.lookups_max:\n",
        "        if len(self._asking) < 0:\n",
        f"{LISTS_TESTS} -k flood",
    ),
    Mutation(
        "a next hop without an answer makes a recipient unknown",
        VERIFY,
        "        if answer.outcome is Outcome.UNKNOWN:\n            return _unknown",
        "        if answer.outcome is not Outcome.VALID:\n            return _unknown",
        f"{VERIFY_TESTS} -k not_about_the_recipient",
    ),
    Mutation(
        "an answer that decides nothing is stored",
        VERIFY,
        "        if answer.outcome is not Outcome.UNDECIDED:\n            await",
        "        if answer is not None:\n            await",
        f"{VERIFY_TESTS} -k not_about_the_recipient",
    ),
    Mutation(
        "probes are not bounded",
        VERIFY,
        "        if len(self._probes) >= self._settings.address_verify_concurrency:\n",
        "        if len(self._probes) < 0:\n",
        f"{VERIFY_TESTS} -k bounded_in_all",
    ),
    Mutation(
        "an answer of another next hop counts",
        VERIFY,
        '        key = f"{route.destination} {comparable(recipient)}"\n',
        "        key = comparable(recipient)\n",
        f"{VERIFY_TESTS} -k change_of_the_route",
    ),
    Mutation(
        "the time of the client counts as time of the header checks",
        "mailcore/rewriting/budget.py",
        "        self._left = self._until - self._clock()\n",
        "        self._left = -1.0\n",
        f"{CHECKS_TESTS} -k only_the_time",
    ),
    Mutation(
        "the last line of the header checks that matches counts",
        CHECKS,
        "                        return line.action._replace(text=filled(text, match)) if match is not None else line.action\n",
        "                        at += 1\n                        continue\n",
        CHECKS_TESTS,
    ),
    Mutation(
        "a block that does not match is searched",
        CHECKS,
        "                elif line.action is None:\n                    at = self._ends[at]\n",
        "",
        CHECKS_TESTS,
    ),
    Mutation(
        "a report about TLS that was sent is sent again after a restart",
        "mailcore/tlsrpt/sent.py",
        "        self.outcomes = outcomes_in(home)\n",
        "        self.outcomes = outcomes_in(home / _NAME)\n",
        f"{SENDING_TESTS} -k sent_once",
    ),
    Mutation(
        "an address that has its report gets it with those that failed",
        SENDING,
        "            if not sessions or (str(day), domain, address) in sent.outcomes:\n",
        "            if not sessions:\n",
        f"{SENDING_TESTS} -k tried_alone",
    ),
    Mutation(
        "a report that the queue did not take counts as sent",
        SENDING,
        "            self._paused_until = self._wall() + LOOK_S\n            return self._paused_until\n",
        "            self._paused_until = self._wall() + LOOK_S\n            return None\n",
        f"{SENDING_TESTS} -k takes_nothing",
    ),
    Mutation(
        "an address that fails is tried again whenever another is",
        SENDING,
        "        if now < later.at:\n",
        "        if later.at < 0:\n",
        f"{SENDING_TESTS} -k as_seldom",
    ),
    Mutation(
        "the kinds of sessions of a day are not bounded",
        "mailcore/tls_sessions.py",
        "        if len(self._counts) >= self._kinds_max:\n",
        "        if len(self._counts) < 0:\n",
        "tests/deliverer/test_tls_counting.py -k bounded",
    ),
    Mutation(
        "one domain takes the room of all in the counts of TLS",
        "mailcore/tls_sessions.py",
        "        if self._bytes_of[domain] + size > self._bytes_max // DOMAIN_SHARE:\n",
        "        if self._bytes_of[domain] + size > self._bytes_max:\n",
        "tests/deliverer/test_tls_counting.py -k bounded",
    ),
    Mutation(
        "a field that ends a message is glued to the one that is added",
        SECTION,
        "        if addition and (last or is_begun) and not last.endswith(_CRLF):\n",
        "        if addition and last and not last.endswith(_CRLF):\n",
        f"{MISSING_TESTS} -k ends_inside",
    ),
    Mutation(
        "fields that are missing become part of the body",
        SECTION,
        "            made += (self._addition(data[at : at + 2]), data[at:])\n",
        "            made += (data[at : at + 2], self._addition(data[at : at + 2]), data[at + 2 :])\n",
        f"{MISSING_TESTS} -k wherever_the_data",
    ),
    Mutation(
        "a line that is not a field hides that fields are missing",
        "mailcore/rewriting/missing_fields.py",
        '        and b"" not in names',
        "        and True",
        f"{MISSING_TESTS} -k known_to_be_whole",
    ),
    Mutation(
        "missing fields are added to mail of all clients",
        "mailcore/config/header_completion.py",
        "        if not (is_local or self._adds_always):\n",
        "        if not (is_local or self._adds_always is not None):\n",
        "tests/receiver/test_missing_fields.py -k only_these",
    ),
]
