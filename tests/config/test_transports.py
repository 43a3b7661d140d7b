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
        "2: [transports.smtp] destination_concurrency_positive_feedback must be x, x/concurrency or "
        "x/sqrt_concurrency, with x from 0 to 1 (got '2')",
    ),
    (
        "[transports.smtp]\ndestination_concurrency_positive_feedback = true",
        "2: [transports.smtp] destination_concurrency_positive_feedback must be x, x/concurrency or "
        "x/sqrt_concurrency, with x from 0 to 1 (got true)",
    ),
    (
        "[transports.smtp]\ndestination_concurrency_negative_feedback = ''",
        "2: [transports.smtp] destination_concurrency_negative_feedback must be x, x/concurrency or "
        "x/sqrt_concurrency, with x from 0 to 1 (got '')",
    ),
    (
        "[transports.smtp]\ndestination_concurrency_negative_feedback = nan",
        "2: [transports.smtp] destination_concurrency_negative_feedback must be x, x/concurrency or "
        "x/sqrt_concurrency, with x from 0 to 1 (got nan)",
    ),
    (
        "[transports.smtp]\ndestination_concurrency_feedback_debug = 'yes'",
        "2: [transports.smtp] destination_concurrency_feedback_debug must be true or false (got 'yes')",
    ),
    (
        "[scheduler]\nprocess_limit = 1",
        "2: [scheduler] process_limit is not a setting here; it belongs in [transports.NAME]",
    ),
    (
        "[transports.smtp]\ndestinations = 3",
        "2: [transports.smtp] destinations must be a section, [transports.smtp.destinations] (got 3)",
    ),
    (
        "[transports.smtp.destinations]\n'example.org' = 3",
        "2: [transports.smtp.destinations] example.org must be a section, [transports.smtp.destinations.example.org] (got 3)",
    ),
    (
        "[transports.smtp.destinations.'example.org']\ndestination_concurency_limit = 3",
        "2: [transports.smtp.destinations.example.org] destination_concurency_limit is not a setting here; did you "
        "mean 'destination_concurrency_limit'?",
    ),
    (
        "[transports.smtp.destinations.'example.org']\n\nprocess_limit = 3",
        "3: [transports.smtp.destinations.example.org] process_limit is not a setting here; it belongs in [transports.NAME]",
    ),
    (
        "[transports.smtp.destinations.'example.org']\ndestination_concurrency_limit = 0",
        "2: [transports.smtp.destinations.example.org] destination_concurrency_limit must be between 1 and 10000 "
        "deliveries (got 0)",
    ),
    (
        "[transports.smtp.destinations.'*']\ndestination_concurrency_limit = 1",
        '1: [transports.smtp.destinations] * must be a destination: "example.org", ".example.org" for all its '
        'subdomains, "example.org:587", "[192.0.2.1]",',
    ),
    (
        "[transports.smtp.destinations.'192.0.2.1']",
        '1: [transports.smtp.destinations] 192.0.2.1 must be a destination: "example.org", ".example.org" for all '
        'its subdomains, "example.org:587",',
    ),
    (
        "[transports.smtp.destinations.'']",
        '1: [transports.smtp.destinations]  must be a destination: "example.org", ".example.org" for all its '
        'subdomains, "example.org:587", "[192.0.2.1]",',
    ),
    (
        "[transports.smtp.destinations.'.[192.0.2.1]']",
        '1: [transports.smtp.destinations] .[192.0.2.1] must be a destination: "example.org", ".example.org" for '
        'all its subdomains, "example.org:587",',
    ),
    (
        "[transports.smtp.destinations.'a b@example.org']",
        '1: [transports.smtp.destinations] a b@example.org must be a destination: "example.org", ".example.org" '
        'for all its subdomains, "example.org:587",',
    ),
    (
        "[transports.smtp.destinations.'example.org']\n[transports.smtp.destinations.'example.org:25']",
        "2: [transports.smtp.destinations] example.org:25 must not be there twice; it is the same as 'example.org'",
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
