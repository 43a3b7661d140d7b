"""What is answered out of the settings: parameters with their explanations."""

from __future__ import annotations

from mailcore.control.client import AsyncControlClient
from mailcore.scheduler.parameters import DESTINATION_SCOPE, GLOBAL_SCOPE, SUSPENDED_UNTIL, TRANSPORT_SCOPE
from tests.control.house import House


async def test_every_parameter_is_told_with_bounds_unit_and_explanation(
    house: House, control: AsyncControlClient
) -> None:
    answer = await control.call("parameters")
    scopes = answer["scopes"]
    assert [each["name"] for each in scopes["global"]] == list(GLOBAL_SCOPE)
    assert [each["name"] for each in scopes["transport"]] == list(TRANSPORT_SCOPE)
    assert [each["name"] for each in scopes["destination"]] == [n for n in DESTINATION_SCOPE if n != SUSPENDED_UNTIL]
    assert answer["transports"] == ["bulk", "relay", "smtp"]
    cost = next(each for each in scopes["transport"] if each["name"] == "delivery_slot_cost")
    assert cost["kind"] == "whole"
    assert (cost["low"], cost["high"], cost["default"], cost["unit"]) == (0, 10_000, 5, "entries")
    assert "k/(k-1)" in cost["explanation"]
    feedback = scopes["destination"][2]
    assert (feedback["kind"], feedback["default"]) == ("feedback", "1")
    assert "concurrency" in feedback["allowed"]
    assert answer["configured"][""]["minimal_backoff_time"] == house.settings.scheduler.minimal_backoff_time
    assert answer["configured"]["smtp"]["destination_concurrency_positive_feedback"] == "1"
    kinds = {each["kind"] for parameters in scopes.values() for each in parameters}
    assert kinds == {"whole", "number", "feedback", "flag"}
    assert house.manager.requests == []
