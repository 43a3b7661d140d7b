"""Every law has a file that keeps it and a test that fails without it, and every citation in the code names a law."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest

from tests.mutations.test_mutations import MUTATIONS
from tests.test_tidy import FILES, ROOT, parsed, read

PAGE = "docs/laws.md"
CITED = re.compile(r"\blaw: ([a-z0-9]+(?:-[a-z0-9]+)*)")
TEXTS = (".py", ".md", ".toml", ".html", ".js", ".css", ".sh", ".yml", ".j2")
CITING = [name for name in FILES if name.endswith(TEXTS) and name not in (PAGE, "tests/test_laws.py")]
OUTSIDE = re.compile(
    r"\b(?:DESIGN|FACTS|STYLE|HOUSE)\b|\b(?:LOG|NODES)\.md\b|\b[Ss]eed 00\d|\b[Ll]aws? \d"
    r"|\b[Tt]he (?:document|issue)\b|\b[Ii]ssue \d"
)
DOORS = {
    "appliance/common/door.py",
    "appliance/reports/exporter.py",
}  # the second one asks the exporter, never the core


@dataclass
class Law:
    """One entry of the page."""

    name: str
    files: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    mutations: list[str] = field(default_factory=list)


def laws_of(page: str) -> list[Law]:
    """The laws on the page, in its order. Raises AssertionError for a line that is in none of the page's forms."""
    laws: list[Law] = []
    for line in page.splitlines():
        if start := re.match(r"\*\*([a-z0-9-]+)\*\*: \S", line):
            laws.append(Law(start[1]))
        elif kept := re.match(r"- kept by (.+)", line):
            laws[-1].files += re.findall(r"`([^`]+)`", kept[1])
        elif tested := re.fullmatch(r"- tested by `([^`]+)`", line):
            laws[-1].tests.append(tested[1])
        elif broken := re.fullmatch(r'- mutation "(.+)"', line):
            laws[-1].mutations.append(broken[1])
        else:
            assert not line.startswith("- "), f"neither a file nor a test nor a mutation: {line}"
    return laws


LAWS = laws_of(read(PAGE))
NAMES = {law.name for law in LAWS}


def test_the_page_has_laws_and_each_name_once() -> None:
    assert len(LAWS) > 100
    assert len(NAMES) == len(LAWS)
    assert [name for name in NAMES if "-" not in name] == []


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_law_has_files_that_cite_it(law: Law) -> None:
    assert law.files
    for name in law.files:
        assert (ROOT / name).is_file(), name
        assert law.name in CITED.findall(read(name)), f"{name} does not say law: {law.name}"


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_law_has_tests_that_exist(law: Law) -> None:
    assert law.tests
    for test in law.tests:
        name, _, function = test.partition("::")
        assert name.startswith("tests/")
        assert function in parsed(name).functions, test


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_mutation_of_a_law_exists(law: Law) -> None:
    assert set(law.mutations) <= {mutation.name for mutation in MUTATIONS}


def test_a_citation_names_a_law() -> None:
    assert [(name, cited) for name in CITING for cited in CITED.findall(read(name)) if cited not in NAMES] == []


def test_a_file_that_keeps_a_law_is_on_the_page() -> None:
    for name in CITING:
        for cited in re.findall(r"^Keeps ((?:law: [a-z0-9-]+[,\s]*)+)\(docs/laws\.md\)", read(name), re.MULTILINE):
            for law in LAWS:
                assert law.name not in CITED.findall(cited) or name in law.files, f"{name} is not below {law.name}"


def test_nothing_refers_to_a_text_outside_the_repository() -> None:
    """Cite docs/laws.md by law, docs/facts.md, a decision, an RFC, or a public document by its title."""
    ours = [name for name in CITING if not name.startswith("static/vendor/")]
    assert [(name, named.group()) for name in ours if (named := OUTSIDE.search(read(name)))] == []


def test_the_portal_speaks_to_the_core_through_one_door() -> None:
    """Other files import the client's errors only. That they import nothing else of the core is a contract of import-linter."""
    made = {name for name in FILES if name.startswith("appliance/") and "ControlClient(" in read(name)}
    assert made == DOORS
    assert "EXPORTER_SOCKET" in read("appliance/reports/exporter.py")
    assert "CONTROL_SOCKET" not in read("appliance/reports/exporter.py")
