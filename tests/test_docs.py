"""What the pages say can be typed and read: commands exist with their options, files and settings are there."""

from __future__ import annotations

import importlib.metadata
import io
import itertools
import re
import shlex
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mailcore.cli.commands import COMMANDS as TABLE
from mailcore.cli.main import main
from mailcore.cli.tree import command_tree, positionals_of
from tests.test_tidy import FILES, ROOT, read

# Decisions are history; the pages of docs/commands are what --help prints.
PAGES = [name for name in FILES if name.endswith(".md") and not name.startswith(("docs/decisions/", "docs/commands/"))]
CODE = re.compile(
    r"```\w*\n(?P<block>.*?)```|`(?P<span>[^`\n]+)`|^ {4}(?P<indented>\S[^\n]*)$", re.DOTALL | re.MULTILINE
)
FILE_ENDINGS = (".py", ".md", ".toml", ".lock", ".sh")
LOCKS = ("requirements.lock", "requirements-dev.lock")
MADE_AT_RUN_TIME = {"tuned.toml", "managed.toml", "lab.toml", "mail.log", "mail.jsonl", "processes.json"}


def code_of(page: str) -> list[str]:
    """Every span and line of code on a page."""
    found: list[str] = []
    for match in CODE.finditer(read(page)):
        found += (match["block"] or match["span"] or match["indented"]).splitlines()
    return found


def commands_of(page: str) -> list[list[str]]:
    """The `waypost` commands on a page, as the shell would split them."""
    found = []
    for line in code_of(page):
        start = re.match(r"(?:\$ )?(?:\S*/)?waypost (?P<rest>[a-z].*)", line.strip())
        if start:
            words = shlex.split(start["rest"], comments=True)
            choices = words[1].split("|") if len(words) > 1 else [""]  # "queue hold|release ID" is two commands
            found += [[*words[:1], *([choice] if choice else []), *words[2:]] for choice in choices]
    return found


TREE = command_tree(TABLE)
COMMANDS = sorted({tuple(words) for page in PAGES for words in commands_of(page)})


def help_of(words: list[str]) -> tuple[int, str]:
    """Exit status and output of ``waypost WORDS --help``."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        try:
            status = main([*words, "--help"])
        except SystemExit as end:
            status = int(end.code or 0)
    return status, out.getvalue()


def test_pages_show_commands() -> None:
    assert len(COMMANDS) > 10


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_on_a_page_exists_with_its_options(words: tuple[str, ...]) -> None:
    path = [word for word in words[:2] if re.fullmatch(r"[a-z-]+", word)]
    if len(path) == 2 and help_of(path)[0] != 0:
        path.pop()  # the second word was an argument
    status, text = help_of(path)
    assert status == 0, text
    if len(path) == 1 and "COMMAND" in text.split("\n\n")[0]:
        assert len(words) == 1 or words[1].startswith("-") or words[1].isupper(), f"there is no {' '.join(words[:2])}"
    if len(words) > 1 and words[1].isupper():
        return  # for any of its commands
    for word in words:
        if re.fullmatch(r"--[a-z-]+", word):
            assert word in text, f"{' '.join(path)} has no {word}"
    command = TREE.children[path[0]]
    command = command.children.get(path[-1], command)
    names = [str(action.metavar or action.dest) for action in positionals_of(command)]
    for argument in arguments_of(words[len(command.words) - 1 :]):
        assert any(name.endswith(argument) for name in names), f"{' '.join(command.words)} has no argument {argument}"


def arguments_of(words: tuple[str, ...]) -> list[str]:
    """The names of arguments such as DIR and [PATH], but not those of the values of options."""
    bare = ["", *(word.strip("[]").rstrip(".…") for word in words)]
    return [
        word
        for before, word in itertools.pairwise(bare)
        if re.fullmatch(r"[A-Z][A-Z_=]+", word) and not before.startswith("-")
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_file_named_on_a_page_is_there(page: str) -> None:
    known = set(FILES)
    for code in code_of(page):
        for name in re.findall(r"(?<![\w./-])[\w./-]+", code):
            if not name.endswith(FILE_ENDINGS) or Path(name).name in MADE_AT_RUN_TIME or "/" in name[:1]:
                continue
            path = name.removeprefix("./")
            assert path in known or any(each.endswith(f"/{path}") for each in known), path
    for target in re.findall(r"\]\(([^)#:]+)\)", read(page)):
        assert (ROOT / Path(page).parent / target).exists(), f"the link to {target}"


def test_each_room_is_in_the_architecture() -> None:
    rooms = {Path(name).parts[1] for name in FILES if re.match(r"mailcore/\w+/", name)}
    page = read("ARCHITECTURE.md")
    assert [room for room in sorted(rooms) if f"`{room}/`" not in page] == []


def test_each_decision_a_source_names_is_there() -> None:
    there = {Path(name).name[:4] for name in FILES if name.startswith("docs/decisions/")}
    for name in FILES:
        if name.endswith((".py", ".md", ".toml")) and name != "tests/test_docs.py":
            named = set(re.findall(r"(?:decision |docs/decisions/)(\d{4})\b", read(name)))
            assert named <= there, f"{name} names a decision that is not there"


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_holds_what_the_project_asks_for(lock: str) -> None:
    project = tomllib.loads(read("pyproject.toml"))
    asked = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    extras = project["project"]["optional-dependencies"]
    for extra in ("reports", "charts", *(["dev"] if lock == "requirements-dev.lock" else [])):
        asked += extras[extra]
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", read(lock), re.MULTILINE))
    for requirement in map(Requirement, asked):
        assert requirement.name in locked, f"{requirement} is not locked"
        assert requirement.specifier.contains(locked[requirement.name]), f"{requirement} is locked otherwise"


def test_a_host_without_reports_needs_no_spark_and_no_charts() -> None:
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    optional = {Requirement(each).name for extra in ("reports", "charts") for each in extras[extra]} | {"py4j"}
    waiting = [Requirement(each) for each in tomllib.loads(read("pyproject.toml"))["project"]["dependencies"]]
    needed: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        key = (requirement.name, frozenset(requirement.extras))
        if key in needed:
            continue
        needed.add(key)
        for each in map(Requirement, importlib.metadata.requires(requirement.name) or ()):
            if each.marker is None or any(
                each.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)
            ):
                waiting.append(each)
    assert {name for name, _ in needed} & optional == set()


def test_both_locks_agree() -> None:
    small, big = (dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", read(lock), re.MULTILINE)) for lock in LOCKS)
    assert {name: big.get(name) for name in small} == small
