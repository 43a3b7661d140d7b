"""How answers of several shards become one: the table of ways is whole, and what is merged is of the operation's type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailcore.config.known_shards import KnownShard, doubt_others, write_known
from mailcore.control.client import ControlError, NotRunning, Refused
from mailcore.control.protocol.messages import ListPage, SearchPart
from mailcore.control.protocol.past import ListAtPart
from mailcore.control.protocol.scope import OF_THE_NODE
from mailcore.control.protocol.table import OPERATIONS
from mailcore.control.several.step import Taking
from mailcore.control.several.steps import Session, add
from mailcore.control.several.ways import WAYS, steps_of
from mailcore.control.shard_clients import Several
from mailcore.faults import Code
from mailcore.lookup.browse import lane_order
from mailcore.manager_answers import ValueSet


def test_every_operation_has_a_way() -> None:
    assert WAYS.keys() == OPERATIONS.keys()


class Shards:
    """Shards that answer as a function says, which gets the shard, the operation and its arguments."""

    def __init__(self, answer: Any, numbers: tuple[int, ...] = (0, 1), drains: tuple[int, ...] = ()) -> None:
        self.answer = answer
        self.known = [KnownShard(n, Path("/run/shards") / f"{n:02}", n not in drains) for n in numbers]
        self.session = Session()
        self.asked: list[tuple[int, str, dict[str, Any]]] = []

    def parts(self, operation: str, **arguments: Any) -> list[Any]:
        taking = Taking(steps_of(self.known, self.session, operation, arguments))
        waiting: dict[int, list[Any]] = {}
        found = []
        for step in taking:
            if step.is_emit:
                found.append(step.part)
            elif step.is_open:
                self.asked.append((step.shard, step.operation, step.arguments))
                try:
                    answer = self.answer(step.shard, step.operation, step.arguments)
                    waiting[step.shard] = answer if isinstance(answer, list) else [answer]
                except ControlError as error:
                    taking.failed = error
            else:
                taking.gave = waiting[step.shard].pop(0) if waiting[step.shard] else None
        return found

    def ask(self, operation: str, **arguments: Any) -> Any:
        return self.parts(operation, **arguments)[-1]


def item(queue_id: str, lane: str, offset: int, arrived_at: float) -> dict[str, Any]:
    return {
        "queue_id": queue_id, "lane": lane, "offset": offset, "generation": 0, "state": "queued", "states": {}, "active": False,
        "sender": "", "recipients": [], "recipient_count": 1, "size_bytes": 1, "arrived_at": arrived_at, "due_at": 0.0,
        "attempts": 0, "reason": "", "destinations": [],
    }  # fmt: skip


LANES = ("incoming.0", "incoming.1", "retry.60", "hold")


@st.composite
def queues(draw: st.DrawFn) -> dict[int, list[dict[str, Any]]]:
    """The items of up to three shards in the order of each, with any arrivals in their lanes."""
    found: dict[int, list[dict[str, Any]]] = {}
    for number in range(draw(st.integers(1, 3))):
        items = []
        for lane in sorted(LANES, key=lane_order):
            for offset, arrived in enumerate(draw(st.lists(st.integers(0, 9), max_size=5))):
                items.append(item(f"{number}-{lane}-{offset}", lane, offset, float(arrived)))
        found[number] = items
    return found


@given(queues(), st.integers(1, 7), st.integers(1, 4))
def test_pages_of_any_size_have_every_message_once_and_keep_the_order_of_each_shard(
    given_: dict[int, list[dict[str, Any]]], limit: int, budget: int
) -> None:
    """``budget``: a shard reads no more at once, so that its pages may be short, or empty."""

    def page(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        items, cursor = given_[shard], arguments["cursor"]
        first = next((n for n, each in enumerate(items) if f"{each['lane']}:{each['offset']}" == cursor), 0)
        count = min(budget, arguments["limit"])
        rest = items[first + count :]
        following = f"{rest[0]['lane']}:{rest[0]['offset']}" if rest else None
        shown = items[first : first + count]
        return {"items": shown, "cursor": following, "examined": 1, "manager_away": False, "note": ""}

    shards = Shards(page, tuple(given_))
    found: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = msgspec.convert(shards.ask("list", cursor=cursor, limit=limit), ListPage)
        assert len(answer.items) <= limit
        found += msgspec.to_builtins(answer.items)
        cursor = answer.cursor
    for number, items in given_.items():
        assert [each for each in found if each["queue_id"].startswith(f"{number}-")] == items
    assert len(found) == sum(map(len, given_.values()))
    assert [lane_order(each["lane"]) for each in found] == sorted(lane_order(each["lane"]) for each in found)


@given(
    st.dictionaries(st.integers(0, 2), st.lists(st.integers(0, 20), max_size=8), min_size=1),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_pages_of_the_past_are_in_the_order_of_arrival(arrivals: dict[int, list[int]], limit: int, budget: int) -> None:
    keyed = {
        shard: sorted((float(at), f"{shard}-{number}") for number, at in enumerate(ats))
        for shard, ats in arrivals.items()
    }

    def page(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        at, _, queue_id = arguments["cursor"].partition(":")
        behind = [each for each in keyed[shard] if not at or each > (float(at), queue_id)]
        shown = behind[: min(budget, arguments["limit"])]
        more = len(shown) < len(behind)
        items = [
            {name: value for name, value in item(queue_id, "hold", 0, at).items() if name not in ("offset", "active")}
            for at, queue_id in shown
        ]
        return {
            "items": items, "cursor": f"{shown[-1][0]!r}:{shown[-1][1]}" if more else None, "examined": 1, "done": True,
            "time": 5.0, "complete": True, "counted_at": 4.0, "missing": 0, "note": "",
        }  # fmt: skip

    shards = Shards(page, tuple(keyed))
    found: list[tuple[float, str]] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = msgspec.convert(shards.ask("list_at", time=5.0, cursor=cursor, limit=limit), ListAtPart)
        assert answer.complete
        found += [(each.arrived_at, each.queue_id) for each in answer.items]
        cursor = answer.cursor
    assert found == sorted(each for keys in keyed.values() for each in keys)


def test_a_search_goes_through_the_shards_and_says_which_it_left_out() -> None:
    def answer(shard: int, operation: str, arguments: dict[str, Any]) -> list[dict[str, Any]]:
        if shard == 1:
            raise NotRunning("no process listens")
        begin = int(arguments["cursor"] or 0)
        hits: list[dict[str, Any]] = [
            {"queue_id": f"{shard}{n}", "at": 0.0, "sender": "", "recipients": [], "recipient_count": 1, "message_id": "",
             "size_bytes": 1, "state": "queued", "finished_at": None} for n in range(begin, min(begin + 2, 3))
        ]  # fmt: skip
        first = {"items": hits[:1], "cursor": None, "examined": 1, "done": False}
        more = str(begin + 2) if begin + 2 < 3 else None
        return [first, {"items": hits[1:], "cursor": more, "examined": 2, "done": True, "note": ""}]

    shards = Shards(answer, (0, 1, 2))
    found, notes = list[str](), list[object]()
    cursor: str | None = ""
    while cursor is not None:
        part = msgspec.convert(shards.ask("search", sender="a", cursor=cursor, limit=3), SearchPart)
        found += [each.queue_id for each in part.items]
        notes.append(part.note)
        cursor = part.cursor
    assert found == ["00", "01", "02", "20", "21", "22"]
    assert sum("shard 1 does not answer" in str(note) for note in notes) == 1


def test_a_shard_that_is_silent_is_named_and_never_counted_as_empty() -> None:
    size = {"messages": 2, "recipients": 3, "lanes": {}, "destinations": {"a": 3}, "unheard": ["incoming.1"]}

    def answer(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if shard == 1:
            raise NotRunning("no process listens")
        return size

    found = Shards(answer, (0, 1, 2)).ask("size")
    assert (found["messages"], found["unheard"]) == (4, ["incoming.1", "incoming.1@2", "shard 1"])
    with pytest.raises(NotRunning):
        Shards(answer, (1,)).ask("size")


def test_while_the_shards_of_other_nodes_are_not_known_lists_say_so_and_no_change_of_all_is_made(
    tmp_path: Path,
) -> None:
    """law: silent-is-unknown."""
    write_known(tmp_path, [KnownShard(0, tmp_path / "shards" / "00", True, 4)])
    doubt_others(tmp_path)
    several: Several[Any] = Several(str(tmp_path / "control.sock"))
    assert several.look()

    def answer(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if shard:
            raise several.failed(shard, NotRunning("no process listens"))
        queue: dict[str, Any] = {"messages": 2, "recipients": 3, "lanes": {}, "destinations": {}, "unheard": []}
        found: dict[str, Any] = {"destinations": {}, "without_mail": {}, "queued": {}, "suspended": {}, "states": {}}
        return queue | found | {"pid": 1, "manager": True}

    shards = Shards(answer)
    shards.known = several._shards
    assert shards.ask("size")["unheard"] == ["another node"]
    told = "another node does not answer, and its mail is not counted: the shards of other nodes are not known yet"
    assert shards.ask("destinations")["unanswered"] == told
    with pytest.raises(Refused, match="not known yet; nothing was changed in any shard; --here changes those"):
        shards.ask("change_matching", change="hold", filter={})
    assert not [operation for _, operation, _ in shards.asked if operation == "change_matching"]
    here: Several[Any] = Several(str(tmp_path / "control.sock"), here=True)
    assert here.look()
    assert [each.number for each in here._shards] == [0]


def test_destinations_name_a_shard_that_is_silent() -> None:
    """law: silent-is-unknown."""

    def answer(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if shard == 1:
            raise NotRunning("no process listens")
        return {"destinations": {}, "without_mail": {}, "queued": {"a": 3}, "suspended": {}, "states": {}}

    found = Shards(answer, (0, 1, 2)).ask("destinations")
    assert found["queued"] == {"a": 6}
    assert found["unanswered"].startswith("shard 1 does not answer, and its mail is not counted: ")
    assert Shards(answer, (0, 2)).ask("destinations")["unanswered"] == ""


def test_what_is_set_is_set_everywhere_or_nowhere_or_the_answer_says_so() -> None:
    away: set[int] = set()

    def answer(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if operation == "ping":
            return {"pid": 1, "manager": shard not in away}
        if shard in failing:
            raise Refused("the disk is full", code=Code.INTERNAL)
        return {"scope": "smtp"}

    failing: set[int] = set()
    shards = Shards(answer)
    assert shards.ask("set", scope="smtp") == {"scope": "smtp"}
    assert [shard for shard, operation, _ in shards.asked if operation == "set"] == [0, 1]
    away = {1}
    shards = Shards(answer)
    with pytest.raises(Refused, match="nothing was changed in any shard"):
        shards.ask("set", scope="smtp")
    assert [operation for _, operation, _ in shards.asked] == ["ping", "ping"]
    away, failing = set(), {1}
    with pytest.raises(ControlError, match="the shards before have the new value") as error:
        Shards(answer).ask("set", scope="smtp")
    assert error.value.code is Code.OUTCOME_UNKNOWN


def test_where_a_database_keeps_the_queue_one_shard_is_asked_to_set_what_all_follow() -> None:
    away: set[int] = set()

    def answer(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if shard in away:
            raise Refused("away", code=Code.UNAVAILABLE)
        return {"shard": shard, "manager": True}

    def asked(operation: str) -> tuple[Any, list[int]]:
        shards = Shards(answer)
        shards.known[0] = shards.known[0]._replace(in_ids=7)
        found = shards.ask(operation, scope="smtp")
        return found["shard"], [shard for shard, each, _ in shards.asked if each == operation]

    assert asked("set") == (0, [0])
    assert asked("resume") == (0, [0, 1]), "a dead destination is the shard's own"
    away.add(0)
    assert asked("suspend") == (1, [0, 1])
    assert asked("resume") == (1, [0, 1, 0]), "a shard that is away does not keep the others suspended"
    away.add(1)
    with pytest.raises(ControlError, match="away"):
        asked("transport_set")


def test_a_resume_names_the_shards_in_which_a_dead_destination_may_not_be_tried() -> None:
    """law: silent-is-unknown."""
    away = {1}

    def answer(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if shard in away:
            raise Refused("away", code=Code.UNAVAILABLE)
        return {"scope": "smtp:a", "parameter": "suspended_until", "value": None, "before": None}

    shards = Shards(answer, (0, 1, 2))
    shards.known[0] = shards.known[0]._replace(in_ids=7)
    answered = msgspec.convert(shards.ask("resume", destination="smtp:a"), ValueSet)
    assert answered.unanswered == "shard 1: away"
    assert [shard for shard, _, _ in shards.asked] == [0, 1, 2], "the third is resumed all the same"
    away.clear()
    assert msgspec.convert(shards.ask("resume", destination="smtp:a"), ValueSet).unanswered == ""


def test_a_message_is_handed_in_to_shards_in_turn_and_to_none_that_drains() -> None:
    def answer(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if shard == 2:
            raise Refused("away", code=Code.UNAVAILABLE)
        return {"queue_id": f"of {shard}"}

    shards = Shards(answer, (0, 1, 2, 3), drains=(3,))
    taken = []
    for _ in range(9):
        begun = shards.ask("inject_begin", sender="")
        assert shards.ask("inject_data", data=b"x") == begun
        assert shards.ask("inject_end") == begun
        taken.append(begun["queue_id"])
    assert set(taken) == {"of 0", "of 1"}


def test_sums_are_of_numbers_and_keys_only() -> None:
    assert add(
        {"a": 1, "b": {"c": 2.5}, "t": "x", "f": True}, {"a": 2, "b": {"c": 1, "d": 4}, "t": "y", "f": False}
    ) == {
        "a": 3,
        "b": {"c": 3.5, "d": 4},
        "t": "x",
        "f": True,
    }


# -- shards of other nodes


class Nodes(Shards):
    """Shard 0 is here, and 2 at the node b."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer, (0,))
        self.known.append(KnownShard(2, Path("/run/nodes/02"), False, 2, "south", "b", is_here=False))


def silent(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    if shard == 2:
        raise Refused("node b does not answer: no route to host", code=Code.UNAVAILABLE)
    if operation == "ping":
        return {"manager": True}
    return {"messages": 5, "recipients": 5, "lanes": {}, "destinations": {}, "unheard": []}


def counted_or_silent(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return silent(shard, operation, arguments) | {
        "done": True, "errors": {}, "dead": [], "manager_away": False, "note": "", "changed": 0
    }  # fmt: skip


def test_a_shard_of_a_silent_node_is_unknown_with_the_name_of_the_node() -> None:
    """law: silent-is-unknown."""
    size = Nodes(silent).ask("size")
    assert (size["messages"], size["unheard"]) == (5, ["shard 2 at b"])
    assert size["unanswered"] == (
        "shard 2 at b does not answer, and its mail is not counted: node b does not answer: no route to host"
    )
    assert [each["number"] for each in size["by_shard"]] == [0]

    def page(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return silent(shard, operation, arguments) | {
            "items": [], "cursor": None, "examined": 1, "manager_away": False, "note": ""
        }  # fmt: skip

    found = Nodes(page).ask("list", cursor="", limit=10)
    assert found["manager_away"]
    assert (
        found["note"]
        == found["unanswered"]
        == ("shard 2 at b does not answer, and its mail is not in this list: node b does not answer: no route to host")
    )
    with pytest.raises(Refused, match="shard 2 at b: node b does not answer: no route to host"):
        Nodes(counted_or_silent).ask("change_matching", filter={}, dry_run=True)


def test_nothing_is_changed_anywhere_while_a_node_is_silent() -> None:
    nodes = Nodes(silent)
    with pytest.raises(
        Refused, match=r"shard 2 at b: node b does not answer: .*; --here changes those of this node"
    ) as refused:
        nodes.ask("change_matching", filter={})
    assert refused.value.code is Code.UNAVAILABLE
    assert {asked for _, asked, _ in nodes.asked} == {"ping"}


@pytest.mark.parametrize(("operation", "asked"), [("set", [0]), ("suspend", [0]), ("resume", [0, 2])])
def test_a_value_is_set_while_a_node_is_silent_which_takes_it_over_later(operation: str, asked: list[int]) -> None:
    nodes = Nodes(silent)
    assert nodes.ask(operation, scope="smtp")["messages"] == 5
    assert [shard for shard, _, _ in nodes.asked] == asked


@pytest.mark.parametrize("operation", ["set", "transport_set", "suspend"])
def test_a_value_of_all_nodes_is_set_once_at_a_shard_that_is_there(operation: str) -> None:
    """The database has it for all."""

    def answer(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if not shard:
            raise NotRunning("its control process does not run")
        return {"at": shard}

    nodes = Nodes(answer)
    assert nodes.ask(operation) == {"at": 2}
    assert [(shard, asked) for shard, asked, _ in nodes.asked] == [(0, operation), (2, operation)]


def test_each_operation_that_the_first_shard_answers_for_its_node_is_refused_to_others() -> None:
    assert {name for name, way in WAYS.items() if way is WAYS["settings"]} <= OF_THE_NODE


@pytest.mark.parametrize("operation", sorted(OF_THE_NODE))
def test_what_is_about_the_machine_is_asked_at_this_node_alone(operation: str) -> None:
    def answer(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {
            "nodes": [], "manager": True, "disks": [],
            "done": True,
            "assumptions": [],
        }  # fmt: skip

    nodes = Nodes(answer)
    nodes.ask(operation)
    assert {shard for shard, _, _ in nodes.asked} == {0}


def test_a_node_that_has_no_shard_of_its_own_shows_the_others() -> None:
    def answer(shard: int, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"messages": 5, "recipients": 5, "lanes": {}, "destinations": {}, "unheard": []}

    nodes = Nodes(answer)
    del nodes.known[0]
    assert nodes.ask("size")["messages"] == 5
    for operation in ("settings", "ping", "inject_begin", "processes"):
        with pytest.raises(Refused, match="no shard") as refused:
            nodes.ask(operation)
        assert refused.value.code is Code.UNAVAILABLE
