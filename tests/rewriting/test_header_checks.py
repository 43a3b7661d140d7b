"""A file of header checks is read as a whole, as Postfix reads it, and says where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.rewriting.actions import Action, Deed
from mailcore.rewriting.budget import Budget, PatternTooSlow
from mailcore.rewriting.header_checks import read_checks
from mailcore.rewriting.map_text import MapFault


def find(directory: Path, text: str, field: str) -> Action | None:
    path = directory / "checks"
    path.write_text(text)
    budget = Budget(10, lambda: 0.0)
    with budget:
        return read_checks(str(path)).find(field, budget)


@pytest.mark.parametrize(
    ("text", "field", "deed", "result"),
    [
        ("/^subject: (.*) sale/ WARN about $1", "Subject: big sale", Deed.WARN, "about big"),
        ("/^subject: (.*) sale/i WARN", "Subject: big sale", None, ""),
        ("/^to: a.*b/ HOLD", "To: a,\n b", Deed.HOLD, ""),
        ("/^to: a.*b/s HOLD", "To: a,\n b", None, ""),
        ("/^ b/ HOLD", "To: a,\n b", None, ""),
        ("/^ b/m HOLD", "To: a,\n b", Deed.HOLD, ""),
        ("!/^to:/ IGNORE", "Cc: a", Deed.IGNORE, ""),
        ("!/^to:/ IGNORE", "To: a", None, ""),
        ("#x\n/a/ dunno\n/b/\n  REDIRECT\n  c@d.example", "b", Deed.REDIRECT, "c@d.example"),
        ("/a/ DUNNO\n/a/ REJECT", "a", Deed.DUNNO, ""),
        ("|^x-a/b| strip gone", "X-A/B: 1", Deed.STRIP, "gone"),
        ("/a\\/b/ INFO", "a/b", Deed.INFO, ""),
        ("if /^from:/\nif !/good/\n/./ REJECT\nendif\nendif\n/./ WARN", "From: bad", Deed.REJECT, ""),
        ("if /^from:/\nif !/good/\n/./ REJECT\nendif\nendif\n/./ WARN", "From: good", Deed.WARN, ""),
        ("if /^from:/\nif !/good/\n/./ REJECT\nendif\nendif\n/./ WARN", "To: bad", Deed.WARN, ""),
    ],
)
def test_the_first_line_that_matches_says_what_is_done(
    tmp_path: Path, text: str, field: str, deed: Deed | None, result: str
) -> None:
    action = find(tmp_path, text, field)
    assert (action and action.deed, action.text if action else "") == (deed, result)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("/a/ WARN\n/(/ WARN", r"checks:2: not a regular expression"),
        ("/a/ FILTER smtp:x", r"checks:1: 'FILTER' is not an action; allowed: BCC, DISCARD"),
        ("/a/x WARN", r"checks:1: the flag 'x' is not supported; allowed: i, m, s"),
        ("/a/ PREPEND", r"PREPEND needs a header field"),
        ("/a/ REDIRECT nowhere", r"'nowhere' is not an address"),
        ("!/(a)/ WARN $1", r"\$1: the pattern has 0 groups"),
        ("/a/ WARN\nendif", r"checks:2: 'endif' without 'if'"),
        ("if /a/\n/a/ WARN", r"checks:1: 'if' without 'endif'"),
        ("if /a/ WARN", r"checks:1: 'WARN' after 'if /PATTERN/'"),
        ("/a/ WARN $1", r"\$1: the pattern has 0 groups"),
        ("nonsense", r"checks:1: must be /PATTERN/ and an action"),
    ],
)
def test_a_fault_names_file_and_line(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(MapFault, match=fault):
        find(tmp_path, text, "")


def test_all_patterns_together_have_the_time_of_the_budget(tmp_path: Path) -> None:
    path = tmp_path / "checks"
    path.write_text("/nothing/ WARN\n/neither/ WARN\n")
    checks = read_checks(str(path))
    times = iter([0.0, 0.1, 0.21, 0.21])
    budget = Budget(0.2, lambda: next(times))
    with pytest.raises(PatternTooSlow, match=r"checks:2: the patterns take too long for the header"), budget:
        checks.find("Subject: x", budget)


def test_only_the_time_of_the_checks_counts() -> None:
    now = [0.0]
    budget = Budget(0.2, lambda: now[0])
    for work, pause in ((0.15, 100.0), (0.0, 100.0)):
        with budget:
            now[0] += work
            assert budget.for_pattern() > 0
        now[0] += pause  # the client sends slowly
    with budget:
        now[0] += 0.06
        assert budget.for_pattern() <= 0
