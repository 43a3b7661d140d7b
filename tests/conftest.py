"""Options of every test run: --long, --servers, --update-golden, and the checks that ./test ran before pytest."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from typing import cast

import hypothesis
import pytest
from django.core.management import call_command
from django.db import connection
from pytest_django.plugin import DjangoDbBlocker, blocking_manager_key
from xdist.scheduler import LoadScopeScheduling

from tests.golden_files import Golden

pytest.register_assert_rewrite(
    "tests.queue.audit", "tests.queue.simulated_machine"
)  # their asserts say what they compared


# How long an example takes says something of the machine, and nothing of the code.
for name, examples in (("short", 60), ("long", 300)):
    hypothesis.settings.register_profile(
        name, max_examples=examples, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
hypothesis.settings.load_profile("short")


def pytest_configure(config: pytest.Config) -> None:
    """Loads the profile before the tests are, which take the number of their examples from it.

    A shell lets what it starts in the background ignore SIGINT, and so would all that the tests start and interrupt.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--long"):
        hypothesis.settings.load_profile("long")


# Files that take longest, longest first: begun last, one of them would be waited for alone.
LONGEST = (
    "tests/end_to_end/test_report_day.py",
    "tests/nodes",
    "tests/appliance/pipeline",
    "tests/browser/test_access.py",
    "tests/end_to_end",
    "tests/browser",
    "tests/import_postfix",
    "tests/ansible",
    "tests/appliance/reports",
    "tests/backup",
    "tests/manager",
    "tests/events",
    "tests/control",
)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker all tests of a file, whose fixtures are made once; and all that share a Spark to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return SPARK if file.startswith(SPARK) else file


SPARK = "tests/appliance/pipeline"


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByFile:
    """Shares out the tests among the workers that ``./test`` starts."""
    return ByFile(config, log)


FOUND = pytest.StashKey[tuple[object, ...]]()
MIGRATED = {"rows": "[]"}  # what the migrations wrote into the empty database, as JSON


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Keeps what the migrations wrote, for the tests that come after one with transactions."""
    with django_db_blocker.unblock():
        MIGRATED["rows"] = connection.creation.serialize_db_to_string()


def signals() -> tuple[object, ...]:
    """What a test finds and leaves: the handlers of signals that end a process, and those that are blocked."""
    handlers = (signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD))
    return (*handlers, frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ())))


def put_signals_back(found: tuple[object, ...]) -> None:
    """Fails a test that has left others: a later one of the same worker would never hear its signal."""
    left = signals()
    if left == found:
        return
    for number, handler in zip((signal.SIGINT, signal.SIGTERM, signal.SIGCHLD), found[:3], strict=True):
        signal.signal(number, cast(signal.Handlers, handler))
    signal.pthread_sigmask(signal.SIG_SETMASK, cast(frozenset[signal.Signals], found[3]))
    # A SparkContext takes SIGINT for itself, and keeps it.
    spark = getattr(left[0], "__module__", "") == "pyspark.core.context" and left[1:] == found[1:]
    assert spark, f"the test leaves other signals than it found: {found} became {left}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Keeps the signals that a test finds, all its fixtures included."""
    item.stash[FOUND] = signals()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Puts back what a test may leave to others of its worker: signals, and what the migrations wrote (roles, schedules).

    pytest-django runs tests with transactions last, as they empty the database, but only among those of one process; a worker
    may get another file afterwards.
    """
    yield
    put_signals_back(item.stash[FOUND])
    marker = item.get_closest_marker("django_db")
    fixtures = set(getattr(item, "fixturenames", ()))
    if (marker is None or not marker.kwargs.get("transaction")) and not fixtures & {"transactional_db", "live_server"}:
        return
    with item.config.stash[blocking_manager_key].unblock():
        call_command("flush", interactive=False, verbosity=0, inhibit_post_migrate=True)
        connection.creation.deserialize_db_from_string(MIGRATED["rows"])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", default=False, help="run the tests that take minutes, too")
    parser.addoption("--servers", action="store_true", default=False, help="boot servers in containers, too")
    parser.addoption("--update-golden", action="store_true", default=False, help="write golden files, do not compare")
    parser.addoption("--checks-failed", default="", help="checks that failed before pytest: the run fails for them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares a text with a file below tests/golden: ``golden("doctor.txt", text)``."""
    return Golden(request.node.nodeid.partition("::")[0], update=bool(request.config.getoption("--update-golden")))


# Collecting makes 7 000 tests that all stay: to look for garbage among them takes each worker two seconds of five.
gc.disable()


def pytest_collection_finish() -> None:
    """Looks for garbage again, but not among the tests that were collected."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked ``long`` are skipped without --long, those marked ``servers`` without --servers."""
    for name, why in (("long", "takes minutes"), ("servers", "boots servers")):
        if config.getoption(f"--{name}"):
            continue
        skip = pytest.mark.skip(reason=f"{why}; ./test --{name}")
        for item in items:
            if item.get_closest_marker(name):
                item.add_marker(skip)
    if config.getoption("numprocesses", None) is not None or hasattr(config, "workerinput"):
        items.sort(
            key=lambda item: next((n for n, path in enumerate(LONGEST) if item.nodeid.startswith(path)), len(LONGEST))
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--checks-failed") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if failed := config.getoption("--checks-failed"):
        terminalreporter.section("checks before pytest", red=True)
        terminalreporter.line(f"FAILED {failed} (what they said stands above the tests)", red=True)
    reports = (report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind))
    warnings = [text for report in reports for name, text in report.user_properties if name == "warning"]
    if warnings:
        terminalreporter.section("not errors, but to be looked at")
        for warning in sorted(warnings):
            terminalreporter.line(warning)
