"""The scheduler's bounds and defaults are the settings' own; what is allowed is said with scope, parameter and value."""

from __future__ import annotations

import dataclasses
import math

import pytest

from mailcore.bounds import Kind, shown
from mailcore.config import load as config
from mailcore.config.settings import Destination
from mailcore.scheduler.feedback import Feedback
from mailcore.scheduler.parameters import (
    DESTINATION_SCOPE,
    GLOBAL_SCOPE,
    SUSPENDED_UNTIL,
    TRANSPORT_SCOPE,
    DestinationParameters,
    Parameters,
    TransportParameters,
    check,
)


def test_bounds_and_defaults_are_those_of_the_settings() -> None:
    """And none is missing, in the file or on the way from it."""
    for scope, section, ours in (
        (GLOBAL_SCOPE, config.Scheduler, Parameters()),
        (TRANSPORT_SCOPE, config.Transport, TransportParameters()),
    ):
        settings = {field.name: field for field in dataclasses.fields(section)}
        assert set(scope) <= set(settings)
        for name, bounds in scope.items():
            setting = settings[name]
            default = str(bounds.default) if bounds.kind is Kind.FEEDBACK else bounds.default
            assert setting.default == default, name
            assert getattr(ours, name) == bounds.default, name
            if bounds.kind is not Kind.FEEDBACK:
                configured = setting.metadata["bounds"]
                assert (bounds.low, bounds.high) == (configured.low, configured.high), name
    settable = {field.name for field in dataclasses.fields(Destination)}
    assert settable == set(DESTINATION_SCOPE) - {SUSPENDED_UNTIL}


def test_every_parameter_of_the_design_is_there_with_its_default() -> None:
    assert {name: each.default for name, each in GLOBAL_SCOPE.items()} == {
        "message_active_limit": 20_000,
        "message_recipient_limit": 20_000,
        "message_recipient_minimum": 10,
        "minimal_backoff_time": 300,
        "maximal_backoff_time": 4_000,
        "maximal_queue_lifetime": 5 * 86_400,
        "bounce_queue_lifetime": 5 * 86_400,
        "transport_retry_time": 60,
        "idle_destination_limit": 10_000,
        "deferred_active_share": 0.5,
    }
    destination = {
        "initial_destination_concurrency": 5,
        "destination_concurrency_limit": 20,
        "destination_concurrency_positive_feedback": Feedback(1),
        "destination_concurrency_negative_feedback": Feedback(1),
        "destination_concurrency_failed_cohort_limit": 1,
        "destination_rate_delay": 0,
        "destination_recipient_limit": 50,
        "destination_concurrency_feedback_debug": False,
    }
    assert {name: each.default for name, each in DESTINATION_SCOPE.items()} == {**destination, SUSPENDED_UNTIL: None}
    assert {name: each.default for name, each in TRANSPORT_SCOPE.items()} == {
        **destination,
        "process_limit": 100,
        "delivery_slot_cost": 5,
        "delivery_slot_loan": 3,
        "delivery_slot_discount": 50,
        "minimum_delivery_slots": 3,
        "recipient_limit": 20_000,
        "extra_recipient_limit": 1_000,
        "recipient_refill_limit": 100,
        "recipient_refill_delay": 5,
        "transport_rate_delay": 0,
    }


def test_the_table_says_what_the_values_are() -> None:
    for scope, values in ((GLOBAL_SCOPE, Parameters()), (TRANSPORT_SCOPE, TransportParameters())):
        for name, bounds in scope.items():
            assert getattr(values, name) == bounds.default
            assert bounds.doc
            assert bounds.unit or bounds.kind is Kind.FLAG
    for name, bounds in DESTINATION_SCOPE.items():
        assert getattr(DestinationParameters(), name) == bounds.default


@pytest.mark.parametrize(
    ("scope", "parameter", "given", "value"),
    [
        ("", "message_active_limit", 10, 10),
        ("", "minimal_backoff_time", 1, 1.0),
        ("smtp", "process_limit", 7.0, 7),
        ("smtp", "destination_concurrency_feedback_debug", "yes", True),
        ("smtp", "destination_concurrency_feedback_debug", 0, False),
        ("smtp", "destination_concurrency_feedback_debug", "True", True),
        (
            "smtp:example.org",
            "destination_concurrency_positive_feedback",
            "1/concurrency",
            Feedback.parse("1/concurrency"),
        ),
        ("smtp:example.org", "destination_concurrency_negative_feedback", 0.25, Feedback(0.25)),
        ("smtp:example.org", SUSPENDED_UNTIL, math.inf, math.inf),
    ],
)
def test_a_value_that_is_allowed_comes_back_as_it_is_used(
    scope: str, parameter: str, given: object, value: object
) -> None:
    read = check(scope, parameter, given)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("scope", "parameter", "given", "allowed"),
    [
        ("", "message_active_limit", 9, "must be between 10 and 1000000 messages"),
        ("", "message_active_limit", "many", "must be a whole number between 10 and 1000000 messages"),
        ("", "message_active_limit", True, "a whole number"),
        ("", "message_active_limit", 10.5, "a whole number"),
        ("", "message_active_limit", math.nan, "a whole number"),
        ("", "message_active_limit", None, "a whole number"),
        ("", "minimal_backoff_time", math.inf, "must be between 0.1 and 86400 seconds"),
        ("smtp", "delivery_slot_discount", 101, "between 0 and 100 percent"),
        (
            "smtp",
            "destination_concurrency_positive_feedback",
            "2/concurrency",
            "x/sqrt_concurrency, with x from 0 to 1",
        ),
        ("smtp", "destination_concurrency_feedback_debug", "maybe", "must be true or false"),
        ("smtp", "destination_concurrency_feedback_debug", 2, "must be true or false"),
        ("smtp:example.org", SUSPENDED_UNTIL, math.nan, "must be a number"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_all_its_names(
    scope: str, parameter: str, given: object, allowed: str
) -> None:
    with pytest.raises(ValueError, match=parameter) as refused:
        check(scope, parameter, given)
    for part in (parameter, f"(got {shown(given)})", allowed):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("scope", "parameter"), [("", "process_limit"), ("smtp", SUSPENDED_UNTIL), ("smtp:example.org", "process_limit")]
)
def test_a_parameter_of_another_scope_is_refused_naming_those_there_are(scope: str, parameter: str) -> None:
    with pytest.raises(ValueError, match=r"is not a parameter of .*; its parameters are .*, "):
        check(scope, parameter, 1)
