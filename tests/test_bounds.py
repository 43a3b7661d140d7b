"""One value has one set of bounds and one sentence, in every place where it can be set."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from appliance.destinations.forms import value_of
from appliance.tuning.value import read as typed_in_portal
from mailcore.bounds import BadValue, Bounds, Kind, bounds_by_name, number_from_text, percent_from_text, shown
from mailcore.cli.parameter import value_of as typed_on_command_line
from mailcore.config.load import ConfigError, load, load_text
from mailcore.config.scheduler_parameters import parameters_of
from mailcore.config.settings import SECTIONS, Destination, Settings, Transport
from mailcore.control.protocol.table import ArgumentError
from mailcore.control.protocol.tuning import Changed
from mailcore.control.whatif_values import asked_values, faults_of, live_values
from mailcore.scheduler.parameters import DESTINATION_SCOPE, GLOBAL_SCOPE, SUSPENDED_UNTIL, TRANSPORT_SCOPE
from mailcore.scheduler.scheduler import Scheduler

DESTINATION = "smtp:example.org"
HEADER = {"": "scheduler", "smtp": "transports.smtp", DESTINATION: 'transports.smtp.destinations."example.org"'}
SECTION_KINDS = {**SECTIONS, HEADER["smtp"]: Transport, HEADER[DESTINATION]: Destination}

SETTINGS = [
    pytest.param(section, bounds, id=f"{section} {name}")
    for section, kind in SECTION_KINDS.items()
    for name, bounds in bounds_by_name(kind).items()
]
PARAMETERS = [
    pytest.param(scope, bounds, id=f"{scope} {name}")
    for scope, table in (("", GLOBAL_SCOPE), ("smtp", TRANSPORT_SCOPE), (DESTINATION, DESTINATION_SCOPE))
    for name, bounds in table.items()
    if name != SUSPENDED_UNTIL
]
NUMBERS = (Kind.WHOLE, Kind.NUMBER)


def at_the_ends(bounds: Bounds) -> list[Any]:
    """The values at both bounds."""
    if bounds.kind in NUMBERS:
        return [int(end) if float(end).is_integer() else end for end in (bounds.low, bounds.high)]
    if bounds.kind is Kind.FEEDBACK:
        return [0, 1, "1/concurrency", "0/sqrt_concurrency"]
    return [True, False] if bounds.kind is Kind.FLAG else [bounds.default]


def beyond(bounds: Bounds) -> list[Any]:
    """The values just outside both bounds, and one of another type."""
    if bounds.kind is Kind.WHOLE:
        return [int(bounds.low) - 1, int(bounds.high) + 1, "many"]
    if bounds.kind is Kind.NUMBER:
        return [math.nextafter(bounds.low, -math.inf), math.nextafter(bounds.high, math.inf), "many"]
    if bounds.kind is Kind.FEEDBACK:
        return [-0.1, 1.1, "2/concurrency", "1/window"]
    return ["perhaps"] if bounds.kind is Kind.FLAG else [5, {}]


def in_toml(value: Any) -> str:
    return repr(value) if isinstance(value, float) else "{}" if value == {} else json.dumps(value)


def file_text(section: str, name: str, value: Any) -> str:
    """With the settings that it needs beside it, so that they do not contradict each other."""
    other = {
        "minimal_backoff_time": "maximal_backoff_time = 604800",
        "maximal_backoff_time": "minimal_backoff_time = 0.1",
        "make_users": 'viewer_groups = ["viewers"]',
        "passwords": 'issuer = "https://issuer.example"\nclient_id = "waypost"\nclient_secret_file = "secret"',
    }
    return f"[{section}]\n{name} = {in_toml(value)}\n{other.get(name, '')}\n"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bounds")
    (directory / "waypost.toml").write_text("[scheduler]\nminimal_backoff_time = 0.1\nmaximal_backoff_time = 604800\n")
    return directory


@pytest.fixture(scope="module")
def settings(directory: Path) -> Settings:
    found = load(directory / "waypost.toml")
    found.home.mkdir(exist_ok=True)
    return found


def refusal_in_file(directory: Path, section: str, name: str, value: Any) -> str:
    """The sentence without file, line and section; "" if the value is accepted."""
    try:
        load_text(directory / "waypost.toml", file_text(section, name, value))
    except ConfigError as error:
        (fault,) = error.faults
        assert (fault.section, fault.name, fault.line) == (section.replace('"', ""), name, 2)
        return f"{fault.name} {fault.reason}"
    return ""


@pytest.mark.parametrize(("section", "bounds"), SETTINGS)
def test_a_setting_may_be_its_bounds_and_nothing_beyond(directory: Path, section: str, bounds: Bounds) -> None:
    for value in at_the_ends(bounds):
        assert (
            refusal_in_file(directory, section, bounds.name, list(value) if isinstance(value, tuple) else value) == ""
        )
    for value in beyond(bounds):
        expected = bounds.error(value)
        assert (expected.name, expected.value) == (bounds.name, value)
        assert refusal_in_file(directory, section, bounds.name, value) == str(expected)


def refusals(directory: Path, settings: Settings, scope: str, bounds: Bounds, value: Any) -> dict[str, str]:
    """What each place answers to the value; "" if it is accepted."""
    name, parameters = bounds.name, parameters_of(settings)
    answers = {"the file": refusal_in_file(directory, HEADER[scope], name, value)}
    try:
        Scheduler(parameters).set(scope, name, value, 0.0)  # as the operation ``set`` does in the manager
        answers["set"] = ""
    except BadValue as error:
        answers["set"] = str(error) if (error.name, error.value) == (name, value) else "of another name or value"
    try:
        asked_values(settings, Scheduler(parameters), [Changed(scope=scope, parameter=name, value=value)])
        answers["simulate"] = ""
    except ArgumentError as error:
        answers["simulate"] = str(error)
    (fault,) = faults_of(settings, Scheduler(parameters), [Changed(scope=scope, parameter=name, value=value)])
    answers["check_changes"] = "" if fault is None else fault.message
    (settings.home / "tuned.toml").write_text(f"[{json.dumps(scope)}]\n{name} = {in_toml(value)}\n")
    _, ignored = live_values(settings, parameters, 0.0)
    answers["tuned.toml"] = (
        "".join(ignored).removeprefix(f'A value set live for "{scope}" is left out: ').removesuffix(".")
    )
    text = value if isinstance(value, str) else repr(value)
    readers = {
        "the page of the parameters": typed_in_portal(bounds.kind.value, text, bounds.low, None),
        "the page of a destination": value_of(text, bounds.kind.value),
        "the command line": typed_on_command_line(text),
    }
    for place, typed in readers.items():
        try:
            Scheduler(parameters).set(scope, name, typed, 0.0)
            answers[place] = ""
        except BadValue as error:
            answers[place] = str(error)
    return answers


@pytest.mark.parametrize(("scope", "bounds"), PARAMETERS)
def test_every_place_refuses_the_same_values_of_a_parameter_with_the_same_sentence(
    directory: Path, settings: Settings, scope: str, bounds: Bounds
) -> None:
    for value in at_the_ends(bounds):
        assert set(refusals(directory, settings, scope, bounds, value).values()) == {""}, value
    for value in beyond(bounds):
        answers = refusals(directory, settings, scope, bounds, value)
        as_text = shown(str(value)) if bounds.kind is Kind.FEEDBACK else shown(value)  # portals keep a feedback as text
        expected = {str(bounds.error(value)), str(bounds.error(value)).replace(shown(value), as_text)}
        assert set(answers.values()) <= expected, answers
        alike = {answers[place] for place in ("the file", "set", "simulate", "check_changes", "tuned.toml")}
        assert len(alike) == 1, answers


def test_the_sentence_names_value_bounds_and_unit() -> None:
    limit = TRANSPORT_SCOPE["process_limit"]
    assert str(limit.error(0)) == "process_limit must be between 1 and 10000 deliveries (got 0)"
    assert (
        str(limit.error("many")) == "process_limit must be a whole number between 1 and 10000 deliveries (got 'many')"
    )
    assert str(limit.error("x" * 10_000)).count("x") < 100
    assert limit.description == "maximum concurrent deliveries of the transport"
    assert TRANSPORT_SCOPE["transport_rate_delay"].description.endswith("; 0: no pause")
    assert pickle.loads(pickle.dumps(limit.error(0))).reason == limit.error(0).reason


@pytest.mark.parametrize(
    ("text", "number"),
    [("20 000", 20_000), ("20_000", 20_000), (" 0.5", 0.5), ("1e3", 1_000.0), ("-1", -1), ("7.0", 7.0), ("", None),
     ("nan", None), ("inf", None), ("1e400", None), ("9" * 30, None), ("50%", None), ("many", None), ("1 2", None)],
)  # fmt: skip
def test_a_number_is_read_as_a_person_types_it(text: str, number: float | None) -> None:
    found = number_from_text(text)
    assert found == number
    assert type(found) is type(number)


def test_a_percentage_is_a_share_of_the_value_and_never_below_the_lowest() -> None:
    assert (percent_from_text("50%"), percent_from_text("12.5 %"), percent_from_text("50")) == (50, 12.5, None)
    limit = TRANSPORT_SCOPE["process_limit"]
    assert (limit.share(5, 50), limit.share(1, 10)) == (2, 1)
    assert TRANSPORT_SCOPE["recipient_refill_delay"].share(5, 50) == 2.5


def test_every_bound_has_a_meaning_and_its_default_is_allowed() -> None:
    for kind in (*SECTION_KINDS.values(),):
        for name, bounds in bounds_by_name(kind).items():
            assert bounds.name == name
            assert bounds.doc
            assert not bounds.doc.endswith(".")
            assert all(bounds.low <= value <= bounds.high for value in bounds.special if bounds.kind in NUMBERS)
            if bounds.kind in NUMBERS:
                assert bounds.read(bounds.default) == bounds.default
        assert {each.name for each in dataclasses.fields(kind)} - set(bounds_by_name(kind)) <= {"destinations"}


@pytest.mark.parametrize(
    ("high", "unit", "words"),
    [
        (8_640_000, "seconds", "8640000 seconds, which is 100 days (got -1)"),
        (86_400, "seconds", "86400 seconds, which is 1 day (got -1)"),
        (7_200, "seconds", "7200 seconds, which is 2 hours (got -1)"),
        (60, "seconds", "60 seconds (got -1)"),
        (90_000, "bytes", "90000 bytes (got -1)"),
    ],
)
def test_many_seconds_are_said_in_days_or_hours(high: int, unit: str, words: str) -> None:
    with pytest.raises(BadValue) as caught:
        Bounds(kind=Kind.WHOLE, doc="", default=0, name="for_s", low=0, high=high, unit=unit).read(-1)
    assert str(caught.value) == f"for_s must be between 0 and {words}"
