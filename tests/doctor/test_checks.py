"""Checks run side by side, each within its time, and none of them spoils the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from mailcore.doctor.checks import ALONE, CHECKS, Check, in_order, run_checks
from mailcore.doctor.finding import Finding, State, good, warn, worst
from mailcore.doctor.host import Host
from tests.doctor.sample_host import found, sample_host
from tests.eventually import PATIENCE_S


def fine(_: Host) -> Iterator[Finding]:
    yield good("all", "is well")


def test_a_check_that_hangs_is_a_finding_and_what_it_found_counts(tmp_path: Path) -> None:
    for_ever = threading.Event()

    def hangs(_: Host) -> Iterator[Finding]:
        yield good("first", "is well")
        for_ever.wait()

    checks = [Check("stuck", hangs, 0.2), Check("other", fine, 10.0)]
    findings = in_order(run_checks(sample_host(tmp_path), checks, []), checks, [])
    for_ever.set()
    assert [(each.subject, each.what, each.state) for each in findings] == [
        ("stuck", "first", State.GOOD),
        ("stuck", "stuck", State.WARN),
        ("other", "all", State.GOOD),
    ]
    assert "did not finish within 0.2 s" in findings[1].found
    assert findings[1].remedy


def test_a_finding_comes_before_its_check_has_ended(tmp_path: Path) -> None:
    goes_on = threading.Event()

    def waits(_: Host) -> Iterator[Finding]:
        yield good("first", "is well")
        assert goes_on.wait(30)
        yield good("second", "is well")

    findings = run_checks(sample_host(tmp_path), [Check("slow", waits, 60.0)], [])
    assert next(findings).what == "first"
    goes_on.set()
    assert [each.what for each in findings] == ["second"]


def test_checks_run_side_by_side(tmp_path: Path) -> None:
    together = threading.Barrier(3, timeout=PATIENCE_S)

    def meets(_: Host) -> Iterator[Finding]:
        together.wait()
        yield good("met", "the others")

    findings = list(run_checks(sample_host(tmp_path), [Check(str(number), meets, 20.0) for number in range(3)], []))
    assert [each.what for each in findings] == ["met"] * 3


def test_a_check_that_fails_says_so_and_the_others_go_on(tmp_path: Path) -> None:
    def breaks(_: Host) -> Iterator[Finding]:
        yield good("before", "is well")
        raise ZeroDivisionError("a fault")

    def closed(_: Host) -> Iterator[Finding]:
        raise PermissionError(13, "Permission denied", "/etc/shadow")

    checks = [Check("a", breaks, 9), Check("b", closed, 9), Check("c", fine, 9)]
    findings = in_order(run_checks(sample_host(tmp_path), checks, []), checks, [])
    assert found(findings, "before").state is State.GOOD
    assert found(findings, "a").state is State.NOT_KNOWN
    assert "ZeroDivisionError: a fault" in findings[1].found
    assert "root" in found(findings, "/etc/shadow").remedy
    assert found(findings, "all").state is State.GOOD


def test_what_is_not_known_is_no_fault_and_the_worst_counts() -> None:
    unknown = Finding(what="x", state=State.NOT_KNOWN, found="?")
    assert worst([]) is State.GOOD
    assert worst([unknown, good("y", "")]) is State.GOOD
    assert worst([unknown, warn("z", "", "")]) is State.WARN
    assert worst([warn("z", "", ""), Finding(what="x", state=State.BAD, found="")]) is State.BAD


def test_every_check_has_a_time_of_its_own() -> None:
    assert all(0 < check.limit_s <= 30 for check in (*ALONE, *CHECKS))
