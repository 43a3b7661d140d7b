"""SPF, by the test suite of RFC 7208 (openspf.org), which is beside this file with its licence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mailcore.authenticity.spf import check_host
from tests.authenticity.zones import Zone

SCENARIOS = list(yaml.safe_load_all((Path(__file__).parent / "rfc7208-tests.yml").read_text(encoding="utf-8")))


def zone_of(data: dict[str, list[Any]]) -> Zone:
    records: dict[str, list[str]] = {}
    failing: list[str] = []
    for name, entries in data.items():
        maps = [each for each in entries if isinstance(each, dict)]
        failing += [name for each in entries if each == "TIMEOUT"]
        has_txt = any("TXT" in each for each in maps)
        for entry in maps:
            for kind, value in entry.items():
                kinds = {"SPF": [] if has_txt else ["TXT"]}.get(kind, [kind])
                if value == "NONE":
                    continue
                for each in kinds:
                    if value == "TIMEOUT":
                        failing.append(f"{name} {each}")
                        continue
                    text = "".join(value) if isinstance(value, list) and each == "TXT" else value
                    if each == "MX":
                        text = f"{value[0]} {value[1]}."
                    records.setdefault(f"{name} {each}", []).append(str(text))
    if "TIMEOUT" in failing:
        failing.remove("TIMEOUT")
    timeouts = [name for name in failing if " " not in name]
    exact = [name for name in failing if " " in name]
    # "TIMEOUT" of a whole name: what it has is answered, the rest is not.
    exact += [
        f"{name} {kind}"
        for name in timeouts
        for kind in ("TXT", "A", "AAAA", "MX", "PTR")
        if f"{name} {kind}" not in records
    ]
    return Zone(records, exact)


CASES = [
    pytest.param(scenario["zonedata"], case, id=name)
    for scenario in SCENARIOS
    for name, case in scenario["tests"].items()
]


@pytest.mark.parametrize(("data", "case"), CASES)
async def test_the_suite_of_the_rfc(data: dict[str, list[Any]], case: dict[str, Any]) -> None:
    sender, helo = case["mailfrom"], case["helo"]
    domain = sender.rpartition("@")[2] if sender else helo
    zone = zone_of(data)
    found = await check_host(zone.answers, str(case["host"]), domain, sender, helo)
    wanted = case["result"] if isinstance(case["result"], list) else [case["result"]]
    assert found.result in wanted, (found, zone.asked)
