"""The file's transports: the scheduler's parameters, and tables of their destinations."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.load import load
from tests.config.test_load import fault, file

__all__ = ["file"]  # the fixture

FAULTS = [
    (
        "[transports.smtp]\ndestination_concurrency_positive_feedback = '2'",
        "2: [transports.smtp] destination_concurrency_positive_feedback '2' is no feedback; allowed: x, x/concurrency or "
        "x/sqrt_concurrency, x from 0 to 1",
    ),
    (
        "[transports.smtp]\ndestination_concurrency_positive_feedback = true",
        "= True is wrong; allowed: a feedback: x, x/conc",
    ),
    ("[transports.smtp]\ndestination_concurrency_negative_feedback = ''", "'' is no feedback; allowed: x, x/conc"),
    ("[transports.smtp]\ndestination_concurrency_negative_feedback = nan", "'nan' is no feedback; allowed: x, x/conc"),
    (
        "[transports.smtp]\ndestination_concurrency_feedback_debug = 'yes'",
        "2: [transports.smtp] destination_concurrency_feedback_debug = 'yes' is wrong; allowed: true or false",
    ),
    ("[scheduler]\nprocess_limit = 1", "2: [scheduler] process_limit is unknown; it belongs in [transports.NAME]; "),
    (
        "[transports.smtp]\ndestinations = 3",
        "2: [transports.smtp] destinations = 3 is wrong; allowed: a section [transports.smtp.destinations]",
    ),
    (
        "[transports.smtp.destinations]\n'example.org' = 3",
        "2: [transports.smtp.destinations] example.org = 3 is wrong; allowed: a section",
    ),
    (
        "[transports.smtp.destinations.'example.org']\ndestination_concurency_limit = 3",
        "2: [transports.smtp.destinations.example.org] destination_concurency_limit is unknown; did you mean "
        "'destination_concurrency_limit'? allowed: initial_destination_concurrency, destination_conc",
    ),
    (
        "[transports.smtp.destinations.'example.org']\n\nprocess_limit = 3",
        "3: [transports.smtp.destinations.example.org] process_limit is unknown; it belongs in [transports.NAME]; ",
    ),
    (
        "[transports.smtp.destinations.'example.org']\ndestination_concurrency_limit = 0",
        "2: [transports.smtp.destinations.example.org] destination_concurrency_limit = 0 is wrong; allowed: a whole",
    ),
    (
        "[transports.smtp.destinations.'*']\ndestination_concurrency_limit = 1",
        '1: [transports.smtp.destinations] * \'*\' is no pattern of destinations; allowed: "example.org", ".example.org"',
    ),
    ("[transports.smtp.destinations.'192.0.2.1']", "'192.0.2.1' is no pattern of destinations"),
    ("[transports.smtp.destinations.'']", "'' is no pattern of destinations"),
    ("[transports.smtp.destinations.'.[192.0.2.1]']", "'.[192.0.2.1]' is no pattern of destinations"),
    ("[transports.smtp.destinations.'a b@example.org']", "'a b@example.org' is no pattern of destinations"),
    (
        "[transports.smtp.destinations.'example.org']\n[transports.smtp.destinations.'example.org:25']",
        "2: [transports.smtp.destinations] example.org:25 is 'example.org' again; allowed: each pattern once",
    ),
]


@pytest.mark.parametrize(("text", "what"), FAULTS, ids=[text[:60].replace("\n", " ") for text, _ in FAULTS])
def test_a_fault_names_its_line_and_what_is_allowed(file: Path, text: str, what: str) -> None:
    assert what in fault(file, text)


def test_the_port_that_is_the_deliverer_s_own_is_not_part_of_a_destination_s_name(file: Path) -> None:
    file.write_text(
        "[deliverer]\nport = 2526\n[transports.smtp.destinations]\n'a.example:2526'={}\n'a.example:25'={}\n"
    )
    assert list(load(file).transports["smtp"].destinations) == ["a.example", "a.example:25"]
