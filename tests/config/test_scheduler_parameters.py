"""What stands in the file is what the scheduler goes by."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from mailcore.bounds import Kind
from mailcore.config.load import load
from mailcore.config.scheduler_parameters import parameters_of
from mailcore.scheduler.feedback import Feedback
from mailcore.scheduler.parameters import GLOBAL_SCOPE, TRANSPORT_SCOPE, Parameters, TransportParameters
from mailcore.scheduler.tuning import Tuning


def test_an_empty_file_gives_the_scheduler_s_defaults(tmp_path: Path) -> None:
    (tmp_path / "waypost.toml").write_text("")
    parameters = parameters_of(load(tmp_path / "waypost.toml"))
    assert set(parameters.transports) == {"smtp", "relay", "bulk"}
    assert dataclasses.replace(parameters, transports={}) == Parameters()
    for name in TRANSPORT_SCOPE:
        assert getattr(parameters.transports["smtp"], name) == getattr(TransportParameters(), name)


def test_each_value_of_the_file_arrives(tmp_path: Path) -> None:
    """Every one, so that none can be forgotten on the way."""
    lines, expected = ["[scheduler]"], {}
    for scope, bounds_by_name in (("", GLOBAL_SCOPE), ("smtp", TRANSPORT_SCOPE)):
        lines += ["[transports.smtp]"] if scope else []
        for number, (name, bounds) in enumerate(bounds_by_name.items()):
            text: str | float
            value: object
            if bounds.kind is Kind.FEEDBACK:
                text, value = f'"0.{number + 1}/concurrency"', Feedback.parse(f"0.{number + 1}/concurrency")
            elif bounds.kind is Kind.FLAG:
                text, value = "true", True
            else:
                text = value = min(30 + number, bounds.high)
            lines.append(f"{name} = {text}")
            expected[scope, name] = value
    lines += ["[transports.smtp.destinations.'.example.org']", "destination_concurrency_negative_feedback = 0.5"]
    (tmp_path / "waypost.toml").write_text("\n".join(lines))
    tuning = Tuning(parameters_of(load(tmp_path / "waypost.toml")))
    assert {key: tuning.get(*key) for key in expected} == expected
    assert tuning.destination("smtp:mx.example.org").destination_concurrency_negative_feedback == Feedback(0.5)
