"""Defines the operations about transports and destinations: their state, their parameters, changes to them, and simulations."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

from msgspec import Meta

from mailcore.control.protocol.operation import (
    Access,
    Answerer,
    Arguments,
    Name,
    Operation,
    Result,
    Seconds,
    WallClock,
    WrongArgument,
)
from mailcore.faults import Fault
from mailcore.lookup.answers import HostInTheClear, MailOutcomes, SenderOutcome, ServiceTimes
from mailcore.manager_answers import Destinations, Transports, ValueSet
from mailcore.scheduler.snapshot import PlainValue
from mailcore.simulator.result import SimulationResult

__all__ = [
    "CHANGED_MAX",
    "NAMES_MAX",
    "OPERATIONS",
    "Changed",
    "ChangesChecked",
    "CheckChangesArguments",
    "DestinationsArguments",
    "HostInTheClear",
    "MailOutcomes",
    "OutcomesArguments",
    "OutcomesPart",
    "ParameterKnown",
    "ParametersKnown",
    "ResumeArguments",
    "SenderOutcome",
    "ServiceTimesArguments",
    "ServiceTimesPart",
    "SetArguments",
    "SimulateArguments",
    "SimulatePart",
    "SimulationResult",
    "SuspendArguments",
    "TimedArguments",
    "TransportSetArguments",
    "TransportsArguments",
    "Unknown",
    "UnknownCode",
    "ValueText",
]

CHANGED_MAX = 100  # of one simulation
ValueText = Annotated[str, Meta(max_length=100)]  # the longest is a feedback
NAMES_MAX = 10_000


class TransportsArguments(Arguments, frozen=True, kw_only=True):
    """Which parameters to list: all, or those in force for one destination."""

    destination: Name | None = None  # only what is in force for this one


class DestinationsArguments(Arguments, frozen=True, kw_only=True):
    """How many destinations to list."""

    limit: Annotated[int, Meta(ge=1, le=NAMES_MAX)] = 100


class TimedArguments(Arguments, frozen=True, kw_only=True):
    """A value, and how long it holds: until a time, for a number of seconds, or until the override is removed."""

    parameter: Name
    value: float | int | bool | ValueText | None  # None: remove the override; "50%": of the value in force
    until: WallClock | None = None
    for_s: Seconds | None = None

    def __post_init__(self) -> None:
        if self.until is not None and self.for_s is not None:
            raise WrongArgument("until and for_s: one of them is allowed", "until")


class TransportSetArguments(TimedArguments, frozen=True, kw_only=True):
    """A value for a transport."""

    transport: Name


class SetArguments(TimedArguments, frozen=True, kw_only=True):
    """A value for any scope."""

    scope: Annotated[str, Meta(max_length=400)]  # "", "smtp", "smtp:example.org", "smtp:.example.org" for all below it


class SuspendArguments(Arguments, frozen=True, kw_only=True):
    """A destination, and until when it gets no deliveries."""

    destination: Name
    until: WallClock | None = None  # None: until it is resumed


class ResumeArguments(Arguments, frozen=True, kw_only=True):
    """The destination whose suspension ends."""

    destination: Name


class Changed(Arguments, frozen=True, kw_only=True):
    """A value as ``set`` takes it."""

    scope: Annotated[str, Meta(max_length=400)]
    parameter: Name
    value: float | int | bool | ValueText | None


class CheckChangesArguments(Arguments, frozen=True, kw_only=True):
    """Values that would be set one after the other."""

    changes: Annotated[list[Changed], Meta(min_length=1, max_length=CHANGED_MAX)]


class SimulateArguments(Arguments, frozen=True, kw_only=True):
    """A simulation of the queued mail with ``changes``; the same seed gives the same result."""

    changes: Annotated[list[Changed], Meta(max_length=CHANGED_MAX)] = []
    duration_s: Annotated[float, Meta(gt=0, le=30 * 86_400)] = 86_400.0  # simulated
    backlog: Literal["live", "none"] = "live"
    arrivals: bool = False  # new mail arrives during the simulation
    since_s: Annotated[float, Meta(gt=0, le=30 * 86_400)] = 3_600.0  # next hops as measured in the last seconds
    hops: Annotated[
        dict[Name, dict[Name, Any]], Meta(max_length=CHANGED_MAX)
    ] = {}  # scope -> [next_hops] of a scenario
    seed: Annotated[int, Meta(ge=0, le=1 << 53)] = 1


class ServiceTimesArguments(Arguments, frozen=True, kw_only=True):
    """How far back deliveries are measured, in seconds and in records."""

    since_s: Seconds = 3600
    records_max: Annotated[int, Meta(ge=1, le=2_000_000)] = 200_000  # of the journal, the newest: about a second


class ParameterKnown(Result):
    """A parameter, without the value that is in force."""

    name: str
    kind: str  # whole, number, flag, choice or text
    low: float
    high: float
    unit: str
    doc: str  # one sentence
    allowed: str  # the bounds in words
    explanation: str  # paragraphs, with an empty line between two
    default: PlainValue | None


class ParametersKnown(Result):
    """The parameters that can be tuned. A suspension is a time and has operations of its own, so it is not among them."""

    scopes: dict[str, list[ParameterKnown]]  # by kind of scope: global, transport, destination
    transports: list[str]
    configured: dict[str, dict[str, PlainValue | None]]  # scope -> parameter -> value of the configuration file


class UnknownCode(enum.StrEnum):
    """Names what a simulation does not know."""

    NO_MAIL = "no_mail"  # nothing to compare: no mail waits, none arrives
    CHANGE_WITHOUT_MAIL = "change_without_mail"  # no mail for what would be changed
    NOT_MEASURED = "not_measured"  # no recent deliveries to these destinations
    ARRIVALS = "arrivals"  # how much mail arrives
    PROVIDER_LIMITS = "provider_limits"  # quotas and rate limits at the next hops
    SHARED_LIMITS = "shared_limits"  # these destinations may have a limit in common
    SIZES = "sizes"  # there are large messages; the time of a delivery is drawn without its size
    CUT_SHORT = "cut_short"  # the simulation stopped before the time asked for


class Unknown(Result):
    """A thing that a simulation does not know."""

    code: UnknownCode
    message: str  # for a person; may be reworded at any time
    names: list[str] = []  # the destinations or scopes concerned, 20 at most


class SimulatePart(Result):
    """The progress of a simulation; the last part has ``done`` and the results."""

    done: bool = False
    progress: float = 0.0  # from 0 to 1, of the stage
    stage: str = ""  # measuring, before or after
    before: SimulationResult | None = None  # with the values in force
    after: SimulationResult | None = None  # with the changed ones
    assumptions: list[str] = []  # sentences for a person
    unknown: list[Unknown] = []  # gaps that may make the result wrong
    unread_files: int = 0  # of events: measurements in them are missing


class OutcomesArguments(Arguments, frozen=True, kw_only=True):
    """How far back outcomes are counted, in seconds and in records."""

    since_s: Seconds = 3600
    records_max: Annotated[int, Meta(ge=1, le=10_000_000)] = 1_000_000  # of the journal, the newest: some seconds


class OutcomesPart(Result):
    """The progress of a count; the last part has ``done`` and the outcomes."""

    done: bool = False
    outcomes: MailOutcomes | None = None


class ServiceTimesPart(Result):
    """The progress of a measurement; the last part has ``done`` and the times."""

    done: bool = False
    times: ServiceTimes | None = None


class ChangesChecked(Result):
    """For each value, in the order of the request: why it could not be set, or None."""

    faults: list[Fault | None]


_READ, _CHANGE = Access.READ, Access.CHANGE
_CONTROL, _MANAGER = Answerer.CONTROL, Answerer.MANAGER

OPERATIONS = (
    Operation(
        "transports",
        TransportsArguments,
        _READ,
        _MANAGER,
        "their parameters, with the origin of each value",
        Transports,
    ),
    Operation("destinations", DestinationsArguments, _READ, _MANAGER, "those with the most mail", Destinations),
    Operation(
        "parameters",
        Arguments,
        _READ,
        _CONTROL,
        "the parameters that can be tuned: bounds, units, explanations",
        ParametersKnown,
    ),
    Operation(
        "check_changes",
        CheckChangesArguments,
        _READ,
        _CONTROL,
        "for each value, why it cannot be set",
        ChangesChecked,
    ),
    Operation("transport_set", TransportSetArguments, _CHANGE, _MANAGER, "a transport's parameter, live", ValueSet),
    Operation("set", SetArguments, _CHANGE, _MANAGER, "a parameter of any scope, live", ValueSet),
    Operation("suspend", SuspendArguments, _CHANGE, _MANAGER, "no deliveries to a destination", ValueSet),
    Operation("resume", ResumeArguments, _CHANGE, _MANAGER, "ends a suspension", ValueSet),
    Operation("simulate", SimulateArguments, _READ, _CONTROL, "a simulation with other parameters", SimulatePart),
    Operation(
        "outcomes",
        OutcomesArguments,
        _READ,
        _CONTROL,
        "bounces by sender domain, and hosts with TLS that got mail in the clear",
        OutcomesPart,
    ),
    Operation(
        "service_times",
        ServiceTimesArguments,
        _READ,
        _CONTROL,
        "how long deliveries took, by destination",
        ServiceTimesPart,
    ),
)
