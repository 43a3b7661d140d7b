"""Which value is in force: the most specific scope, then the layer; and what is set for a time ends by itself."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailcore.scheduler.feedback import Feedback
from mailcore.scheduler.parameters import SUSPENDED_UNTIL, Parameters, TransportParameters, Value
from mailcore.scheduler.tuning import SCOPES_MAX, Layer, Origin, Tuning, scopes_of

LIMIT = "destination_concurrency_limit"


def tuning(**patterns: dict[str, Any]) -> Tuning:
    """``smtp`` with patterns, whose names are written with "_" for the dot, and ``bulk`` with a limit of 7."""
    return Tuning(
        Parameters(
            transports={
                "smtp": TransportParameters(
                    destinations={name.replace("_", "."): values for name, values in patterns.items()}
                ),
                "bulk": TransportParameters(destination_concurrency_limit=7),
            }
        )
    )


def limit(tuning: Tuning, name: str) -> int:
    """As destination and as get say it, which must agree."""
    value = tuning.destination(name).destination_concurrency_limit
    assert tuning.get(name, LIMIT) == value
    return value


@pytest.mark.parametrize(
    ("name", "scopes"),
    [
        ("example.org", ["example.org", ".org"]),
        ("mx.example.org:587", ["mx.example.org:587", "mx.example.org", ".example.org", ".org"]),
        ("[192.0.2.1]:2526", ["[192.0.2.1]:2526", "[192.0.2.1]"]),
        ("[2001:db8::1]", ["[2001:db8::1]"]),
        ("[mx.example.org]", ["[mx.example.org]"]),
        (
            "user@example.org:587",
            ["user@example.org:587", "user@example.org", "example.org:587", "example.org", ".org"],
        ),
        (
            '"a@b"@[2001:db8::1]:25',
            ['"a@b"@[2001:db8::1]:25', '"a@b"@[2001:db8::1]', "[2001:db8::1]:25", "[2001:db8::1]"],
        ),
        (".example.org", [".example.org", ".org"]),
        ("localhost", ["localhost"]),
    ],
)
def test_a_destination_is_taken_by_patterns_from_its_own_name_to_its_top_domain(name: str, scopes: list[str]) -> None:
    assert list(scopes_of(name)) == scopes


def test_the_most_specific_pattern_wins() -> None:
    tuned = tuning(_org={LIMIT: 2}, _example_org={LIMIT: 3}, example_org={LIMIT: 4})
    tuned.set("smtp:example.org:587", LIMIT, 5, 0)
    tuned.set("smtp:user@example.org", LIMIT, 6, 0)
    tuned.set("smtp:[192.0.2.1]:2526", LIMIT, 8, 0)
    found = {
        "smtp:other.org": 2, "smtp:mx.example.org": 3, "smtp:a.mx.example.org:25": 3, "smtp:example.org": 4,
        "smtp:example.org:25": 4, "smtp:example.org:587": 5, "smtp:user@example.org": 6, "smtp:user@example.org:25": 6,
        "smtp:other@example.org:587": 5, "smtp:[192.0.2.1]:2526": 8, "smtp:[192.0.2.1]": 20, "smtp:example.com": 20,
        "bulk:example.org": 7, "gone:example.org": 20,
    }  # fmt: skip
    assert {name: limit(tuned, name) for name in found} == found


def test_what_is_set_for_a_transport_does_not_beat_what_is_configured_for_a_destination() -> None:
    tuned = tuning(example_org={LIMIT: 4})
    tuned.set("smtp", LIMIT, 9, 0)
    assert (limit(tuned, "smtp:example.org"), limit(tuned, "smtp:example.com")) == (4, 9)
    assert tuned.transport("smtp").destination_concurrency_limit == 9
    tuned.set("smtp:example.org", LIMIT, 5, 0)
    assert limit(tuned, "smtp:example.org") == 5
    tuned.set("smtp:example.org", LIMIT, None, 0)
    assert limit(tuned, "smtp:example.org") == 4


def test_each_parameter_is_resolved_by_itself() -> None:
    tuned = tuning(_org={"destination_rate_delay": 1.5}, example_org={LIMIT: 4})
    here = tuned.destination("smtp:example.org")
    assert (here.destination_rate_delay, here.destination_concurrency_limit) == (1.5, 4)
    here = tuned.destination("smtp:mx.example.org")
    assert (here.destination_rate_delay, here.destination_concurrency_limit) == (1.5, 20)


def test_what_is_set_for_a_time_ends_by_itself_and_gives_back_what_was_there() -> None:
    tuned = tuning(example_org={LIMIT: 10})
    tuned.set("smtp:example.org", LIMIT, 8, 0)
    tuned.set("smtp:example.org", LIMIT, 4, 0, until=7_200)
    assert tuned.origin("smtp:example.org", LIMIT) == Origin(4, "smtp:example.org", Layer.TIMED, 7_200)
    assert tuned.first_end() == 7_200
    assert tuned.over(7_199.9) == []
    assert tuned.over(7_200) == ["smtp:example.org"]
    assert tuned.first_end() is None
    assert tuned.origin("smtp:example.org", LIMIT) == Origin(8, "smtp:example.org", Layer.LIVE)
    tuned.set("smtp:example.org", LIMIT, None, 7_300)
    assert tuned.origin("smtp:example.org", LIMIT) == Origin(10, "smtp:example.org", Layer.CONFIGURED)
    assert tuned.origin("smtp:example.com", LIMIT) == Origin(20, "smtp", Layer.CONFIGURED)


def test_a_value_set_for_good_meanwhile_holds_when_the_time_is_over() -> None:
    tuned = tuning()
    tuned.set("smtp", LIMIT, 4, 0, until=10)
    tuned.set("smtp", LIMIT, 8, 1)
    assert limit(tuned, "smtp:example.org") == 4
    tuned.over(10)
    assert limit(tuned, "smtp:example.org") == 8


def test_taking_back_what_is_set_for_a_time_leaves_what_is_set_for_good() -> None:
    tuned = tuning()
    tuned.set("smtp", LIMIT, 8, 0)
    tuned.set("smtp", LIMIT, 4, 0, until=10)
    tuned.set("smtp", LIMIT, None, 1, until=10)
    assert limit(tuned, "smtp:example.org") == 8
    tuned.set("smtp", LIMIT, 4, 1, until=10)
    tuned.set("smtp", LIMIT, None, 2)
    assert limit(tuned, "smtp:example.org") == 20
    assert tuned.first_end() is None
    assert tuned.tuned() == []


def test_a_time_that_is_set_anew_counts_from_the_last_setting() -> None:
    tuned = tuning()
    for until in (10, 30, 20):
        tuned.set("smtp", LIMIT, 4, 0, until=until)
    assert tuned.over(19) == []
    assert tuned.over(20) == ["smtp"]
    assert tuned.over(100) == []


def test_the_timetable_does_not_grow_with_what_is_set_over_and_over() -> None:
    tuned = tuning()
    for until in range(1, 10_000):
        tuned.set("smtp:example.org", LIMIT, 4, 0, until=until)
        tuned.set("smtp:example.org", SUSPENDED_UNTIL, float(until), 0)
    assert len(tuned._timetable) < 200
    assert tuned.over(9_999) == ["smtp:example.org"]


def test_a_suspension_is_a_time_of_its_own_and_ends() -> None:
    tuned = tuning()

    def any_suspended() -> bool:
        return tuned.any_suspended

    assert not any_suspended()
    tuned.set("smtp:.example.org", SUSPENDED_UNTIL, 60, 0)
    assert any_suspended()
    assert tuned.destination("smtp:mx.example.org").suspended_until == 60
    assert tuned.destination("smtp:example.org").suspended_until is None
    assert tuned.get("smtp:mx.example.org", SUSPENDED_UNTIL) == 60
    tuned.set("smtp:mx.example.org", SUSPENDED_UNTIL, math.inf, 0)
    assert tuned.destination("smtp:mx.example.org:25").suspended_until == math.inf
    assert tuned.over(60) == ["smtp:.example.org"]
    assert any_suspended()
    tuned.set("smtp:mx.example.org", SUSPENDED_UNTIL, 60, 61)  # over already: resumes
    assert not any_suspended()
    assert tuned.get("smtp:mx.example.org", SUSPENDED_UNTIL) is None
    assert tuned.destination("smtp:mx.example.org").suspended_until is None
    tuned.set("smtp:mx.example.org", SUSPENDED_UNTIL, None, 61)
    assert not any_suspended()
    with pytest.raises(ValueError, match="is a time itself"):
        tuned.set("smtp:mx.example.org", SUSPENDED_UNTIL, 90, 61, until=100)


def test_global_values_are_attributes() -> None:
    tuned = tuning()
    assert tuned.globals.message_active_limit == 20_000
    tuned.set("", "message_active_limit", 50, 0, until=5)
    assert (tuned.globals.message_active_limit, tuned.get("", "message_active_limit")) == (50, 50)
    assert tuned.over(5) == [""]
    assert tuned.globals.message_active_limit == 20_000


def test_backoff_times_that_contradict_each_other_are_refused() -> None:
    tuned = tuning()
    for parameter, value in (("minimal_backoff_time", 4_001), ("maximal_backoff_time", 299)):
        with pytest.raises(
            ValueError, match=rf"^{parameter} must not be (greater|less) than .*_backoff_time \(got {value} "
        ):
            tuned.set("", parameter, value, 0)
    tuned.set("", "maximal_backoff_time", 8_000, 0)
    tuned.set("", "minimal_backoff_time", 5_000, 0)
    with pytest.raises(ValueError, match="4000"):
        tuned.set("", "maximal_backoff_time", None, 0)
    assert tuned.globals.maximal_backoff_time == 8_000


def test_backoff_times_that_come_to_contradict_each_other_by_themselves_do_no_harm() -> None:
    tuned = tuning()
    tuned.set("", "maximal_backoff_time", 8_000, 0, until=10)
    tuned.set("", "minimal_backoff_time", 5_000, 0)
    tuned.over(10)
    assert (tuned.globals.minimal_backoff_time, tuned.globals.maximal_backoff_time) == (5_000, 5_000)


def test_only_a_transport_makes_recipients_destinations() -> None:
    tuned = tuning(example_org={"destination_recipient_limit": 1})
    tuned.set("smtp:example.com", "destination_recipient_limit", 1, 0)
    assert tuned.by_recipient == frozenset()
    tuned.set("bulk", "destination_recipient_limit", 1, 0, until=5)
    assert tuned.by_recipient == {"bulk"}
    tuned.over(5)
    assert tuned.by_recipient == frozenset()


def test_destinations_with_the_same_scopes_share_one_object() -> None:
    tuned = tuning(_org={LIMIT: 2})
    assert tuned.destination("smtp:a.org") is tuned.destination("smtp:b.org:25")
    assert tuned.destination("smtp:a.com") is tuned.destination("smtp:b.com")
    assert tuned.transport("smtp") is tuned.transport("smtp")
    tuned.set("smtp:.org", "destination_concurrency_positive_feedback", "1/concurrency", 0)
    here = tuned.destination("smtp:b.org")
    assert here.destination_concurrency_positive_feedback == Feedback.parse("1/concurrency")
    assert here is tuned.destination("smtp:a.org")
    tuned.set("smtp:a.com", LIMIT, 3, 0)
    tuned.set("smtp:a.com", LIMIT, None, 0)
    assert tuned.destination("smtp:a.com") is tuned.destination("smtp:b.com")


@pytest.mark.parametrize(
    ("scope", "parameter", "value", "said"),
    [
        ("lmtp", LIMIT, 5, 'no transport "lmtp"; the transports are bulk, smtp'),
        ("lmtp:example.org", LIMIT, 5, 'no transport "lmtp"'),
        ("smtp:", LIMIT, 5, "must be a destination"),
        ("smtp:two words", LIMIT, 5, "must be a destination"),
        ("smtp:" + 500 * "x", LIMIT, 5, "must be a destination"),
        ("smtp", LIMIT, 0, "between 1 and 10000"),
        ("smtp", "no_such", 1, "its parameters are"),
        ("smtp:example.org", "process_limit", 1, "its parameters are"),
        ("smtp", "no_such", None, "its parameters are"),
    ],
)
def test_what_is_not_allowed_is_refused_and_changes_nothing(scope: str, parameter: str, value: Any, said: str) -> None:
    tuned = tuning()
    with pytest.raises(ValueError, match=said):
        tuned.set(scope, parameter, value, 0)
    assert tuned.tuned() == []


@pytest.mark.parametrize("until", [5, 4, -math.inf, math.nan])
def test_a_time_that_is_over_already_is_refused(until: float) -> None:
    tuned = tuning()
    with pytest.raises(ValueError, match="cannot be set until a time that has passed"):
        tuned.set("smtp", LIMIT, 5, 5, until=until)
    assert limit(tuned, "smtp:example.org") == 20


def test_configured_patterns_are_checked() -> None:
    with pytest.raises(
        ValueError, match=r"destination_concurrency_limit must be between 1 and 10000 deliveries \(got 0\)"
    ):
        tuning(example_org={LIMIT: 0})
    with pytest.raises(ValueError, match=SUSPENDED_UNTIL):
        tuning(example_org={SUSPENDED_UNTIL: 5})


def test_scopes_with_values_of_their_own_are_bounded() -> None:
    tuned = tuning()
    for number in range(SCOPES_MAX):
        tuned.set(f"smtp:d{number}.example", LIMIT, 5, 0)
    with pytest.raises(ValueError, match="10000 scopes"):
        tuned.set("smtp:more.example", LIMIT, 5, 0)
    tuned.set("smtp:d7.example", LIMIT, 6, 0)
    tuned.set("smtp:more.example", LIMIT, None, 0)
    tuned.set("smtp:d7.example", LIMIT, None, 0)
    tuned.set("smtp:more.example", LIMIT, 5, 0)
    assert limit(tuned, "smtp:more.example") == 5


# -- against a resolution so simple that it can be read

DESTINATIONS = [
    f"{transport}:{name}"
    for transport in ("smtp", "bulk")
    for name in (
        "example.org", "example.org:587", "mx.example.org", "a.mx.example.org:25", "other.org", "example.com",
        "[192.0.2.1]", "[192.0.2.1]:2526", "user@example.org", "user@example.org:587", "user@[192.0.2.1]:2526",
    )
]  # fmt: skip
SCOPES = ["smtp", "bulk", "smtp:.org", "smtp:.example.org", "bulk:.mx.example.org", *DESTINATIONS]
PATTERNS = st.dictionaries(
    st.sampled_from([".org", ".example.org", "example.org", "example.org:587", "[192.0.2.1]"]),
    st.dictionaries(st.just(LIMIT), st.integers(1, 100)),
)
STEPS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.one_of(
            st.none(),
            st.tuples(
                st.sampled_from(SCOPES),
                st.one_of(st.none(), st.integers(1, 100)),
                st.one_of(st.none(), st.integers(1, 9)),
            ),
        ),
    ),
    max_size=40,
)


class Naive:
    """Every value in lists, looked through each time."""

    def __init__(self, patterns: dict[str, dict[str, Value]]) -> None:
        self.layers: list[dict[str, Any]] = [{}, {}, {"smtp": 20, "bulk": 7}]  # timed (value, until), live, configured
        self.layers[2].update({f"smtp:{name}": values[LIMIT] for name, values in patterns.items() if values})

    def value(self, name: str, now: float) -> int:
        transport, _, rest = name.partition(":")
        bare = rest.partition("@")[2] or rest
        takers = [
            (
                scope.startswith(f"{transport}:"),
                "@" in scope,
                scope.partition(":")[2] in (rest, bare),
                len(scope),
                scope,
            )
            for layer in self.layers
            for scope in layer
            if scope == transport or (scope.startswith(f"{transport}:") and self.takes(scope.partition(":")[2], rest))
        ]
        # A name without a dot in front goes before one with, the longer before the shorter.
        takers.sort(key=lambda each: (each[0], each[1], not each[4].partition(":")[2].startswith("."), each[3]))
        for *_, scope in reversed(takers):
            timed = self.layers[0].get(scope)
            if timed and timed[1] > now:
                return int(timed[0])
            for layer in self.layers[1:]:
                if scope in layer:
                    return int(layer[scope])
        raise AssertionError(name)

    @staticmethod
    def takes(pattern: str, rest: str) -> bool:
        bare = rest.partition("@")[2] or rest
        named = {form for each in (rest, bare) for form in (each, each.removesuffix(":587").removesuffix(":25"))}
        named |= {each.removesuffix(":2526") for each in (rest, bare)}
        below = bare.partition(":")[0] if not bare.startswith("[") else ""
        return pattern in named or (pattern.startswith(".") and below.endswith(pattern))


@settings(deadline=None)
@given(patterns=PATTERNS, steps=STEPS)
def test_values_in_force_are_those_of_a_naive_resolution(patterns: Any, steps: Any) -> None:
    tuned = tuning(**{name.replace(".", "_"): values for name, values in patterns.items()})
    naive = Naive(patterns)
    now = 0.0
    for pause, change in steps:
        now += pause
        before = {name: tuned.destination(name) for name in DESTINATIONS}
        touched = set(tuned.over(now))
        if change is not None:
            scope, value, lasts = change
            until = None if lasts is None else now + lasts
            tuned.set(scope, LIMIT, value, now, until)
            touched.add(scope)
            if value is None or lasts is not None:
                naive.layers[0].pop(scope, None)
            if lasts is not None and value is not None:
                naive.layers[0][scope] = (value, until)
            elif lasts is None and value is not None:
                naive.layers[1][scope] = value
            elif lasts is None:
                naive.layers[1].pop(scope, None)
        for name in DESTINATIONS:
            assert limit(tuned, name) == naive.value(name, now), name
            # A value changes only where the change touches.
            if tuned.destination(name) != before[name]:
                assert any(tuned.touches(scope, name) for scope in touched)
        for scope in touched:
            assert tuned.matching(scope, DESTINATIONS) == [name for name in DESTINATIONS if tuned.touches(scope, name)]
        ends = [until for _, until in naive.layers[0].values() if until > now]
        assert tuned.first_end() == min(ends, default=None)


def test_a_scope_touches_what_it_takes_and_no_other_transport_s() -> None:
    names = ["smtp:example.org", "smtp:mx.example.org:25", "smtp:user@example.org", "bulk:mx.example.org", "bulk:a.com"]
    assert Tuning.matching("", names) == names
    assert Tuning.matching("bulk", names) == names[3:]
    assert Tuning.matching("smtp:.example.org", names) == [names[1]]
    assert Tuning.matching("smtp:example.org", names) == [names[0], names[2]]
    assert Tuning.matching("smtp:mx.example.org:25", names) == [names[1]]
