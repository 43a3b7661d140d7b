"""A core with parameters that can be set: what the pages of this room ask for, and faults where a test wants them."""

from __future__ import annotations

import time
from typing import Any

from mailcore.faults import Code
from tests.appliance.fake_core import FakeCore, Refusal

__all__ = ["LIMIT", "TuningCore", "parameter"]

LIMIT = "destination_concurrency_limit"


def parameter(name: str, kind: str = "whole", low: float = 1, high: float = 10_000, unit: str = "deliveries") -> Any:
    allowed = f"a whole number from {low:g} to {high:g}"
    return {
        "name": name, "kind": kind, "low": low, "high": high, "unit": unit, "doc": f"what {name} does", "default": 20,
        "allowed": allowed, "explanation": "One paragraph.\n\nAnother <b>paragraph</b>.",
    }  # fmt: skip


OF_DESTINATIONS = [
    parameter(LIMIT),
    parameter("initial_destination_concurrency"),
    parameter("destination_concurrency_positive_feedback", "feedback"),
    parameter("destination_concurrency_feedback_debug", "flag"),
]
OF_TRANSPORTS = [*OF_DESTINATIONS, *(parameter(f"process_limit{n}") for n in ("", "_2", "_3", "_4", "_5"))]
GLOBAL = [
    parameter("minimal_backoff_time", "number", 0.1, 86_400, "seconds"),
    parameter("maximal_backoff_time", "number", 0.1, 604_800, "seconds"),
]
VALUES = {
    "destination_concurrency_positive_feedback": "1", "destination_concurrency_feedback_debug": False,
    "minimal_backoff_time": 300.0, "maximal_backoff_time": 4_000.0,
}  # fmt: skip


class TuningCore(FakeCore):
    """``faults``: by parameter, a Refusal or Silence for its ``set``."""

    def __init__(self) -> None:
        super().__init__(
            {
                "parameters": self._parameters,
                "transports": self._transports,
                "set": self._set,
                "check_changes": self._check_changes,
                "destinations": {"destinations": {}},
            }
        )
        self.configured: dict[str, dict[str, Any]] = {
            "": {each["name"]: VALUES.get(each["name"], 20) for each in GLOBAL},
            "smtp": {each["name"]: VALUES.get(each["name"], 20) for each in OF_TRANSPORTS},
        }
        self.lasting: dict[tuple[str, str], Any] = {}
        self.timed: dict[tuple[str, str], tuple[Any, float]] = {}
        self.faults: dict[str, Any] = {}
        self.after_set: Any = None  # called after each

    def __enter__(self) -> TuningCore:
        super().__enter__()
        return self

    def _parameters(self, _: dict[str, Any]) -> Any:
        scopes = {"global": GLOBAL, "transport": OF_TRANSPORTS, "destination": OF_DESTINATIONS}
        return {"scopes": scopes, "transports": ["smtp"], "configured": self.configured}

    def _shown(self, scope: str, name: str) -> dict[str, Any]:
        timed = self.timed.get((scope, name))
        if timed is not None and timed[1] > time.time():
            return {"value": timed[0], "origin": "tuned", "until": timed[1]}
        if (scope, name) in self.lasting:
            return {"value": self.lasting[scope, name], "origin": "tuned"}
        if ":" in scope:
            return self._shown("smtp", name) | {"scope": "smtp"}
        return {"value": self.configured[scope][name], "origin": "configuration"}

    def _transports(self, arguments: dict[str, Any]) -> Any:
        asked = arguments.get("destination")
        if asked:
            if "*" in asked:
                return Refusal(f"destination: {asked!r} is no pattern of destinations", Code.INVALID, "destination")
            scope = asked.lower()
            return {"scopes": {scope: {each["name"]: self._shown(scope, each["name"]) for each in OF_DESTINATIONS}}}
        answer = {
            scope: {name: self._shown(scope, name) for name in values} for scope, values in self.configured.items()
        }
        for scope, name in [*self.lasting, *self.timed]:
            if ":" in scope:
                answer.setdefault(scope, {})[name] = self._shown(scope, name)
        return {"scopes": answer}

    def _set(self, arguments: dict[str, Any]) -> Any:
        fault = self.faults.get(arguments["parameter"])
        if fault is not None:
            return fault
        key = arguments["scope"], arguments["parameter"]
        before = self._shown(*key)["value"]
        until = arguments.get("until") or (time.time() + arguments["for_s"] if arguments.get("for_s") else None)
        if arguments["value"] is None:
            self.lasting.pop(key, None)
            self.timed.pop(key, None)
        elif until is not None:
            self.timed[key] = arguments["value"], until
        else:
            self.lasting[key] = arguments["value"]
        if self.after_set is not None:
            self.after_set()
        return {"scope": key[0], "parameter": key[1], "value": arguments["value"], "before": before, "until": until}

    def _check_changes(self, arguments: dict[str, Any]) -> Any:
        return {"faults": [self._fault_of(at, change) for at, change in enumerate(arguments["changes"])]}

    def _fault_of(self, at: int, change: dict[str, Any]) -> dict[str, Any] | None:
        value, name = change["value"], change["parameter"]
        if name.endswith(("feedback_debug", "positive_feedback")) or value is None:
            return None
        if isinstance(value, int | float) and 1 <= value <= 10_000:
            return None
        message = f"{name} must be between 1 and 10000 deliveries (got {value!r})"
        return {"code": "invalid", "message": message, "argument": f"changes[{at}].value"}
