"""Numbers over several shards: sizes, the live state, destinations, positions, disks, ages and measurements as one.

A shard that does not answer is unknown, and named: it is never counted as empty. Names of lanes and processes of shards but the
first end in ``@`` and the number of the shard where lanes of one name are different ones.
"""

from __future__ import annotations

import json
from typing import Any

from mailcore.config.known_shards import name_of
from mailcore.control.several.lists import as_of
from mailcore.control.several.steps import Answers, Question, Steps, add, emitted

__all__ = [
    "ages", "destinations", "disks", "effects", "outcomes", "ping", "positions", "processes", "service_times", "simulate",
    "size", "size_at", "state",
]  # fmt: skip

AGES_SHOWN = 1_000  # rows
SENDERS_SHOWN = 1_000
REPLIES_SHOWN = 10
DELIVERERS = 100  # numbers of deliverers of a shard begin at this times its number


def ping(question: Question) -> Steps:
    """Tells whether all shards of this node are there."""
    answers: Answers = yield from question.each(numbers=question.here)
    first = next(iter(answers.by_shard.values()))
    yield emitted(
        first | {"manager": not answers.errors and all(each["manager"] for each in answers.by_shard.values())}
    )


def processes(question: Question) -> Steps:
    """Gives the processes of all shards of this node, as its process has written them down."""
    answers: Answers = yield from question.each({}, "ping", question.here)
    run_directory = question.shards[0].run_directory.parent.parent
    found: dict[str, Any] = {}
    for name in ("processes", "children"):
        try:
            found[name] = json.loads((run_directory / f"{name}.json").read_bytes())
        except (OSError, ValueError):
            found[name] = {}
    is_there = not answers.errors and all(each["manager"] for each in answers.by_shard.values())
    yield emitted(found | {"manager": is_there})


def size(question: Question) -> Steps:
    """Gives the sum of the sizes; shards that do not answer are named with the lanes whose mail is not counted."""
    answers: Answers = yield from question.each()
    unheard = [name_of(lane, n) for n, each in answers.by_shard.items() for lane in each["unheard"]]
    unheard += [question.words_of(number) for number in answers.errors]
    by_shard = [
        {"number": number, "messages": each["messages"], "recipients": each["recipients"]}
        for number, each in answers.by_shard.items()
    ]
    unanswered = "; ".join(answers.unknown("its mail is not counted"))
    yield emitted(answers.sum() | {"unheard": unheard, "by_shard": by_shard, "unanswered": unanswered})


def size_at(question: Question) -> Steps:
    """Gives the sum of the sizes at a moment."""
    answers: Answers = yield from question.each()
    oldest = [each["oldest"] for each in answers.by_shard.values() if each["oldest"] is not None]
    yield emitted(
        answers.sum()
        | as_of(answers, "its mail is not counted")
        | {"oldest": min(oldest, key=lambda each: each["arrived_at"], default=None)}
    )


def ages(question: Question) -> Steps:
    """Gives the ages of the mail of all shards."""
    answers: Answers = yield from question.each()
    parts = list(answers.by_shard.values())
    rows: dict[str, Any] = {}
    for part in parts:
        for row in part["rows"]:
            known = rows.get(row["destination"])
            rows[row["destination"]] = row if known is None else _lists_added(known, row, "counts")
    merged = parts[0]
    for part in parts[1:]:
        merged = _lists_added(merged, part, "counts")
    oldest = [part["oldest"] for part in parts if part["oldest"] is not None]
    unanswered = "; ".join(answers.unknown("its mail is not counted"))
    yield emitted(
        merged
        | {
            "buckets_s": parts[0]["buckets_s"],
            "rows": sorted(rows.values(), key=lambda row: -row["total"])[:AGES_SHOWN],
            "oldest": min(oldest, key=lambda each: each["arrived_at"], default=None),
            "as_of": min(part["as_of"] for part in parts),
            "manager_away": bool(answers.errors) or any(part.get("manager_away", False) for part in parts),
            "note": "; ".join(each for each in (answers.joined("note"), unanswered) if each),
            "unanswered": unanswered,
            "done": True,
        }
    )


def _lists_added(a: dict[str, Any], b: dict[str, Any], key: str) -> dict[str, Any]:
    merged: dict[str, Any] = add(a, b)
    if len(a[key]) == len(b[key]):
        merged[key] = [x + y for x, y in zip(a[key], b[key], strict=True)]
    return merged


def state(question: Question) -> Steps:
    """Gives the live state of all managers as one: sums, and what is wrong anywhere."""
    answers: Answers = yield from question.each()
    parts = answers.by_shard
    values = list(parts.values())
    merged = answers.sum()
    merged |= {
        "started_at": max(each["started_at"] for each in values),  # a counter may have begun again
        "counted_since": min(each["counted_since"] for each in values),
        "uptime_s": min(each["uptime_s"] for each in values),
        "pid": values[0]["pid"],
        "unanswered": "; ".join(answers.unknown("nothing of it is counted")),
        "receivers": {name_of(lane, n): pid for n, each in parts.items() for lane, pid in each["receivers"].items()},
        "deliverers": [
            one | {"number": number * DELIVERERS + one["number"]}
            for number, each in parts.items()
            for one in each["deliverers"]
        ],
        "lanes": {name_of(lane, n): at for n, each in parts.items() for lane, at in each["lanes"].items()},
        "positions": {
            "sequence": min(each["positions"]["sequence"] for each in values),
            "written_at": min(each["positions"]["written_at"] for each in values),
        },
        "scheduler": _scheduler([each["scheduler"] for each in values]),
        "measured": _measured([each["measured"] for each in values]),
        "shard": next(
            (parts[each.number].get("shard") for each in question.shards if each.is_here and each.number in parts), None
        ),
        "shards": _rows(question, answers),
    }
    for key in ("stalled", "counted_note", "tuned_damage", "restored", "active_full"):
        merged[key] = answers.joined(key)
    yield emitted(merged)


def _rows(question: Question, answers: Answers) -> list[dict[str, Any]]:
    """Returns a row for each shard; of one that does not answer, what it has is not known."""
    rows = []
    for shard in question.shards:
        answer, error = answers.by_shard.get(shard.number), answers.errors.get(shard.number)
        rows.append(
            {
                "number": shard.number, "name": shard.name, "node": shard.node, "is_here": shard.is_here,
                "answers": answer is not None,
                "why": "" if error is None else str(error),
                "active_messages": None if answer is None else answer["active_messages"],
                "entries_in_flight": None if answer is None else answer["scheduler"]["entries_in_flight"],
            }
        )  # fmt: skip
    return rows


def _scheduler(parts: list[dict[str, Any]]) -> dict[str, Any]:
    merged = parts[0]
    for part in parts[1:]:
        transports = {
            name: _transport(merged["transports"].get(name), part["transports"].get(name))
            for name in {**merged["transports"], **part["transports"]}
        }
        found = {
            name: _destination(merged["destinations"].get(name), part["destinations"].get(name))
            for name in {**merged["destinations"], **part["destinations"]}
        }
        most = max(merged["destinations_total"], part["destinations_total"], len(found))
        parameters = merged["parameters"]
        merged = add(merged, part) | {
            "transports": transports,
            "destinations": found,
            "destinations_total": most,  # a destination may be in several shards
            "parameters": parameters,
        }
    return merged


def _transport(a: dict[str, Any] | None, b: dict[str, Any] | None) -> dict[str, Any]:
    if a is None or b is None:
        return a or b or {}
    merged: dict[str, Any] = add(a, b)
    return merged | {
        "job_list": [*a["job_list"], *b["job_list"]],
        "parameters": a["parameters"],
        "dead_until": _latest(a["dead_until"], b["dead_until"]),
        "dead_s": _latest(a["dead_s"], b["dead_s"]),
        "reason": a["reason"] or b["reason"],
    }


def _latest(a: float | None, b: float | None) -> float | None:
    return b if a is None else a if b is None else max(a, b)


def _destination(a: dict[str, Any] | None, b: dict[str, Any] | None) -> dict[str, Any]:
    """Returns a destination of two shards as one: each has a window of its own."""
    if a is None or b is None:
        return a or b or {}
    merged: dict[str, Any] = add(a, b) | {
        "recipient_limit": a["recipient_limit"],
        "suspended": a["suspended"] or b["suspended"],
        "reason": (a["reason"] if a["dead_until"] is not None else "") or b["reason"] or a["reason"],
    }
    for key in ("success", "failure", "fail_cohorts"):
        merged[key] = max(a[key], b[key])
    for key in ("dead_until", "dead_s", "suspended_until", "suspended_s", "rest_s"):
        merged[key] = _latest(a[key], b[key])
    return merged


def _outcomes(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields of ``Outcomes`` of two shards as one."""
    merged = {key: a.get(key, 0) + b.get(key, 0) for key in ("delivered", "deferred", "bounced", "expired")}
    tries = merged["delivered"] + merged["deferred"] + merged["bounced"]
    shares = [each["recent_share"] for each in (a, b) if each.get("recent_share") is not None]
    return {
        **merged,
        "success_share": merged["delivered"] / tries if tries else None,
        "recent_share": min(shares, default=None),
        "last_delivered_at": _latest(a.get("last_delivered_at"), b.get("last_delivered_at")),
        "last_replies": sorted(
            [*a.get("last_replies", ()), *b.get("last_replies", ())], key=lambda each: -float(each["at"])
        )[:REPLIES_SHOWN],
    }


def _measured(parts: list[dict[str, Any] | None]) -> dict[str, Any] | None:
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    merged = known[0]
    for part in known[1:]:
        merged = {
            "refusals": add(merged["refusals"], part["refusals"]),
            "syncs": _histograms(merged["syncs"], part["syncs"]),
            "delays": _histograms(merged["delays"], part["delays"]),
        }
    return merged


def _histograms(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _lists_added(a[name], b[name], "counts") | {"bounds": a[name]["bounds"]}
        if name in a and name in b
        else a.get(name, b.get(name))
        for name in {**a, **b}
    }


def destinations(question: Question) -> Steps:
    """Gives the destinations of all shards, those with the most mail first."""
    limit = question.arguments.get("limit", 100)
    answers: Answers = yield from question.each()
    parts = list(answers.by_shard.values())
    with_mail: dict[str, Any] = {}
    without: dict[str, Any] = {}
    states: dict[str, list[Any]] = {}
    suspended: dict[str, Any] = {}
    queued: dict[str, int] = {}
    for part in parts:
        queued = add(queued, part["queued"])
        suspended |= part["suspended"]
        for name, each in part["destinations"].items():
            known = with_mail.get(name)
            with_mail[name] = each if known is None else _destination(known, each) | _outcomes(known, each)
        for name, each in part["without_mail"].items():
            without[name] = each if name not in without else _outcomes(without[name], each)
        for name, found in part["states"].items():
            known_states = states.setdefault(name, [])
            known_states += [each for each in found if each[0] not in [one[0] for one in known_states]]
    for name in with_mail.keys() & without.keys():
        with_mail[name] |= _outcomes(with_mail[name], without.pop(name))
    for found in states.values():
        if len(found) > 1:  # that it is ready in one shard is not the news
            found.sort(key=lambda each: each[0] in ("ready", "idle"))
    first = sorted(with_mail, key=lambda name: (-with_mail[name]["queued"], -with_mail[name]["busy"]))[:limit]
    most = sorted(queued, key=lambda name: -queued[name])[: max(limit, 1)]
    latest = list(without)[:limit]
    names = {*first, *most, *latest, *suspended}
    yield emitted(
        {
            "destinations": {name: with_mail[name] for name in first},
            "without_mail": {name: without[name] for name in latest},
            "queued": {name: queued[name] for name in most},
            "suspended": suspended,
            "states": {name: each for name, each in states.items() if name in names},
            "unanswered": "; ".join(answers.unknown("its mail is not counted")),
        }
    )


def positions(question: Question) -> Steps:
    """Gives the lanes of all shards, and their journals as one: sums, and what a start of all reads."""
    answers: Answers = yield from question.each()
    values = list(answers.by_shard.values())
    merged = answers.sum()
    journals = [each["journal"] for each in values]
    recoveries = [each["recovery"] for each in values]
    messages = [each["messages"] for each in recoveries]
    unanswered = "; ".join(answers.unknown("its lanes are not shown"))
    ages_s = [each["age_s"] for each in values if each["age_s"] is not None]
    yield emitted(
        merged
        | {
            "sequence": min(each["sequence"] for each in values),
            "written_at": min(each["written_at"] for each in values),
            "age_s": max(ages_s, default=None),
            "note": "; ".join(each for each in (answers.joined("note"), unanswered) if each),
            "unanswered": unanswered,
            "lanes": [
                lane | {"lane": name_of(lane["lane"], number)}
                for number, each in answers.by_shard.items()
                for lane in each["lanes"]
            ],
            "journal": merged["journal"] | {"segments": [one for each in journals for one in each["segments"]]},
            "recovery": merged["recovery"]
            | {
                "seconds_estimate": max(each["seconds_estimate"] for each in recoveries),
                "messages": None if None in messages else sum(messages),
                "sentence": " ".join(
                    f"Shard {n}: {each['recovery']['sentence']}" for n, each in answers.by_shard.items()
                ),
            },
        }
    )


def disks(question: Question) -> Steps:
    """Gives the disks of the first shard of this node, and those of others of it that are on another device."""
    answers: Answers = yield from question.each(numbers=question.here)
    found: list[Any] = []
    for number, each in answers.by_shard.items():
        known = {(disk["what"].partition("@")[0], disk["device"]) for disk in found}
        found += [
            disk | {"what": name_of(disk["what"], number)}
            for disk in each["disks"]
            if (disk["what"], disk["device"]) not in known
        ]
    yield emitted({"disks": found})


def outcomes(question: Question) -> Steps:
    """Gives the outcomes of the mail of all shards."""
    answers: Answers = yield from question.each()
    found = [each["outcomes"] for each in answers.by_shard.values() if each.get("outcomes")]
    if not found:
        yield emitted({"done": True, "outcomes": None})
        return
    senders: dict[str, Any] = {}
    hosts: dict[str, Any] = {}
    for each in found:
        for sender in each["senders"]:
            senders[sender["domain"]] = add(senders.get(sender["domain"], {}), sender)
        for host in each["hosts"]:
            hosts[host["host"]] = add(hosts.get(host["host"], {}), host)
    unanswered = "; ".join(answers.unknown("its mail is not counted"))
    notes = [*(each["note"] for each in found), unanswered]
    merged = {
        "since": max(each["since"] for each in found),
        "senders": sorted(senders.values(), key=lambda each: -each["bounced"])[:SENDERS_SHOWN],
        "hosts": sorted(hosts.values(), key=lambda each: -each["over_tls"])[:SENDERS_SHOWN],
        "note": "; ".join(each for each in notes if each),
        "unanswered": unanswered,
    }
    for key in ("senders_left_out", "others_ended", "others_bounced", "hosts_left_out", "examined"):
        merged[key] = sum(each[key] for each in found)
    yield emitted({"done": True, "outcomes": merged})


def service_times(question: Question) -> Steps:
    """Gives how long deliveries of all shards took."""
    answers: Answers = yield from question.each()
    found = [each["times"] for each in answers.by_shard.values() if each.get("times")]
    if not found:
        yield emitted({"done": True, "times": None})
        return
    by_name: dict[str, Any] = {}
    for each in found:
        for name, times in each["destinations"].items():
            known = by_name.get(name)
            if known is None:
                by_name[name] = times
                continue
            by_name[name] = add(known, times) | {
                "connect_s": sorted([*known["connect_s"], *times["connect_s"]]),
                "transmit_s": sorted([*known["transmit_s"], *times["transmit_s"]]),
                "replies": sorted([*known["replies"], *times["replies"]], key=lambda one: -one["at"])[:REPLIES_SHOWN],
            }
    unanswered = "; ".join(answers.unknown("its deliveries are not measured"))
    notes = [*(each["note"] for each in found), unanswered]
    merged = {
        "destinations": by_name,
        "since": max(each["since"] for each in found),
        "note": "; ".join(each for each in notes if each),
        "unanswered": unanswered,
    }
    for key in ("examined", "destinations_left_out", "unread_files"):
        merged[key] = sum(each[key] for each in found)
    yield emitted({"done": True, "times": merged})


def effects(question: Question) -> Steps:
    """Gives what a change of settings would do to the mail of the first shard of this node: it is not complete."""
    answer = yield from question.ask(question.here[0])
    for part in ("queued", "clients", "signatures"):
        if answer.get(part) is not None:
            answer[part]["complete"] = False
    yield emitted(answer)


def simulate(question: Question) -> Steps:
    """Simulates the mail of the first shard, and says so."""
    first, others = question.here[0], len(question.numbers) - 1
    parts = yield from question.parts(first)
    words = f"Only the mail of shard {first} is simulated; that of the other {others} is left out."
    for part in parts:
        yield emitted(part | {"assumptions": [words, *part["assumptions"]]} if part.get("done") else part)
