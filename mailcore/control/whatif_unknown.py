"""Finds what a simulation does not know: nothing to compare, unmeasured next hops, limits of providers, sizes.

Each finding has a code, for programs, and a sentence, for people. The assumptions say how the model simplifies what is known;
these findings say where the answer may be wrong without a way to notice. Pure: values in, values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mailcore.control.protocol.tuning import Unknown, UnknownCode
from mailcore.counted import counted
from mailcore.scheduler.tuning import Tuning
from mailcore.simulator.measured import LARGE_BYTES, UNMEASURED_S, Tried
from mailcore.simulator.question import LaneSample
from mailcore.simulator.result import SimulationResult

__all__ = ["RATE_S_MIN", "comparison", "cut_short", "names_shown", "next_hops", "rate", "sizes"]

RATE_S_MIN = 60.0  # a rate of arrival measured for less time is chance
NAMES_SHOWN = 3  # in a sentence
NAMES_MAX = 20  # of one finding
MORE = 1.1  # after over before: the change delivers noticeably more at once
SOONER = 0.99  # after over before, of the time until the backlog is delivered
SAME_END = 0.01  # of the simulated time


def comparison(wanted: Sequence[str], scopes: Iterable[str], *, waiting: bool, arrivals: bool) -> list[Unknown]:
    """Finds that there is no mail, or none that the changes touch.

    ``wanted``: destinations with mail, waiting or arriving. ``waiting``: whether any mail waits. ``arrivals``: whether new
    mail was asked for.
    """
    if not wanted:
        none = "no mail waits" if not waiting else "no mail that waits can be delivered"
        more = "and none is known to arrive" if arrivals else "and new mail was left out"
        return [_found(UnknownCode.NO_MAIL, f"There is nothing to compare: {none}, {more}.")]
    without = [scope for scope in dict.fromkeys(scopes) if scope and not Tuning.matching(scope, wanted)]
    if not without:
        return []
    text = (
        f"No mail waits for {names_shown(without)}, and none is known to arrive there: the effect there is not known."
    )
    return [_found(UnknownCode.CHANGE_WITHOUT_MAIL, text, without)]


def rate(uptime_s: float, recipients: int | None) -> list[Unknown]:
    """Finds that the rate of arriving mail is not known."""
    if recipients is None:
        return [_found(UnknownCode.ARRIVALS, "How much mail arrives is not known; none was simulated.")]
    if uptime_s >= RATE_S_MIN:
        return []
    text = f"The manager has counted arriving mail for only {uptime_s:.0f} s: how much arrives is hardly known."
    return [_found(UnknownCode.ARRIVALS, text)]


def next_hops(
    wanted: Sequence[str],
    measured: Mapping[str, int],
    tried: Mapping[str, Sequence[Tried]],
    results: tuple[SimulationResult, SimulationResult],
    since_s: float,
) -> list[Unknown]:
    """Finds what is not known of the next hops: their times, their quotas, and whose limits are shared.

    ``measured``: measured destinations, with the recipients each deferred. ``results``: before and after.
    """
    found: list[Unknown] = []
    unmeasured = [name for name in wanted if name not in measured]
    if unmeasured:
        none = "No delivery" if len(unmeasured) == len(wanted) else f"No delivery to {names_shown(unmeasured)}"
        text = (
            f"{none} was measured in the last {_span(since_s)}: each is taken to need {UNMEASURED_S:g} s, which may be far "
            "from the truth."
        )
        found.append(_found(UnknownCode.NOT_MEASURED, text, unmeasured))
    deferring = [name for name in wanted if measured.get(name) or any(each.failed for each in tried.get(name, ()))]
    sentences = []
    if deferring:
        sentences.append(
            f"{names_shown(deferring)} deferred mail in the last {_span(since_s)}. Whether a quota or rate limit of the "
            "provider was the reason is not known: the simulation defers the same share at any rate."
        )
    if _is_faster(*results):
        sentences.append(
            "With the change, mail is delivered faster than before. Whether a quota or rate limit of a provider is reached "
            "then is not known: the simulation has no such limits."
        )
    if sentences:
        found.append(_found(UnknownCode.PROVIDER_LIMITS, " ".join(sentences), deferring))
    shared = _shared(wanted, tried)
    if shared:
        text = (
            f"{names_shown(shared)} have the same server or the same next hop. A limit that they share is not known: the "
            "simulation gives each of them its own."
        )
        found.append(_found(UnknownCode.SHARED_LIMITS, text, shared))
    return found


def sizes(lanes: Iterable[LaneSample], tried: Mapping[str, Sequence[Tried]]) -> list[Unknown]:
    """Finds large messages, in the queue or among the measured deliveries."""
    sampled = large = 0
    for lane in lanes:
        sampled += sum(len(part) for part in lane.parts)
        large += lane.large
    slow = sum(each.size_bytes >= LARGE_BYTES for there in tried.values() for each in there)
    told = [f"{large} of {sampled} sampled messages in the queue"] if large else []
    told += [counted(slow, "measured delivery")] if slow else []
    if not told:
        return []
    text = (
        f"Large messages ({LARGE_BYTES >> 20} MiB or more): {' and '.join(told)}. How long each of them takes is not known: "
        "the simulation draws the time of a delivery without looking at its size."
    )
    return [_found(UnknownCode.SIZES, text)]


def cut_short(before: SimulationResult, after: SimulationResult) -> list[Unknown]:
    """Finds that a simulation stopped before the time asked for, so that counts may be of different times."""
    if not (before.truncated or after.truncated):
        return []
    ends = [result.series.t[-1] if result.series.t else 0.0 for result in (before, after)]
    text = f"Only the first {_span(ends[0])} were simulated"
    if abs(ends[0] - ends[1]) > SAME_END * max(ends):
        text += f" before the change and {_span(ends[1])} with it; so their counts cannot be compared"
    return [_found(UnknownCode.CUT_SHORT, f"{text}, not all the time asked for: what comes later is not known.")]


def names_shown(names: Sequence[str]) -> str:
    """Returns the first names, and how many more there are."""
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _found(code: UnknownCode, message: str, names: Sequence[str] = ()) -> Unknown:
    return Unknown(code=code, message=message, names=list(names[:NAMES_MAX]))


def _is_faster(before: SimulationResult, after: SimulationResult) -> bool:
    if before.drain_s is not None and after.drain_s is not None and after.drain_s < SOONER * before.drain_s:
        return True
    was = before.series.busy | before.series.transports
    is_ = after.series.busy | after.series.transports
    return any(max(values, default=0.0) > MORE * max(was.get(name, [0.0]), default=0.0) for name, values in is_.items())


def _shared(wanted: Iterable[str], tried: Mapping[str, Sequence[Tried]]) -> list[str]:
    """Returns the destinations that have a server, or the name of the next hop, in common with another one."""
    by_place: dict[tuple[str, str], list[str]] = {}
    for name in wanted:
        places = {("server", each.relay) for each in tried.get(name, ()) if each.relay and each.relay != "none"}
        places.add(("next hop", name.partition(":")[2].casefold()))
        for place in places:
            by_place.setdefault(place, []).append(name)
    return list(dict.fromkeys(name for names in by_place.values() if len(names) > 1 for name in names))


def _span(seconds: float) -> str:
    for unit, words in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit or seconds == unit:
            count = round(seconds / unit)
            return words[:-1] if count == 1 else f"{count} {words}"
    return f"{seconds:.0f} s"
