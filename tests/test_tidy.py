"""The house is kept: files short enough to read, each saying what it is, one word for one thing, nothing of one machine."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import grimp  # of import-linter

ROOT = Path(__file__).resolve().parent.parent
LINES_MANY = 400  # what is read in one sitting; above it the file is named at the end of the run
LINES_MAX = 600
TEMPLATE_COLUMNS_MAX = 160
GENERATED = "clients/python/waypost_client/"  # made by clients/python/generate.py, or short

# A word that another word has taken (GLOSSARY.md), and where it is meant otherwise.
SYNONYMS = {
    r"\b(msg_?id|mail_?id|message_?uid)s?\b": "queue id",
    r"\b(work|delivery|retry)_?queues?\b": "lane",
    r"\bsmart_?hosts?\b": "next hop",
    r"(?<!journal_mode = )(?<!\"-)\bWAL\b|\bwrite-ahead\b": "journal",
    r"\btombstones?\b": "mark",
    r"\bworking_?set\b": "working suffix",
    r"\bworker(?!s?')s?\b": "receiver or deliverer",
    r"\b(rcpt_?to_?list|recips?|rcpts)\b": "recipients",
    r"\b(outcome|result)_?code\b": "verdict",
}


def tracked() -> list[str]:
    """Files of the project: those git knows, or in a copy without git all that are no one's output."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    made = {
        ".venv",
        "__pycache__",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        "var",
        "build",
        "dist",
    }
    below = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return [str(path) for path in below if not made.intersection(path.parts) and "egg-info" not in str(path)]


FILES = tracked()
SOURCES = [name for name in FILES if name.endswith(".py")]
PROGRAMS = [name for name in SOURCES if Path(name).name != "__init__.py"]


@cache
def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Parsed:
    """What these tests ask of a source file; its tree is not kept."""

    docstring: str | None
    inner_imports: list[int]  # lines of imports inside a function
    star_imports: list[int]
    strings: list[tuple[int, str]]  # line, a string with a full stop in it and no space
    functions: frozenset[str]  # names of all functions and methods


@cache
def parsed(name: str) -> Parsed:
    tree = ast.parse(read(name))
    nodes = list(ast.walk(tree))
    return Parsed(
        docstring=ast.get_docstring(tree),
        inner_imports=sorted(set(_inner_imports(nodes))),
        star_imports=[
            node.lineno
            for node in nodes
            if isinstance(node, ast.ImportFrom) and [each.name for each in node.names] == ["*"]
        ],
        strings=[
            (node.lineno, node.value)
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if "." in node.value and " " not in node.value
        ],
        functions=frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)),
    )


def _inner_imports(nodes: list[ast.AST]) -> Iterator[int]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from (each.lineno for each in ast.walk(node) if isinstance(each, ast.Import | ast.ImportFrom))


# One test goes through all files: a case for each file would be collected by every worker, and cost more than its check.


def test_a_file_is_read_in_one_sitting(record_property: Callable[[str, object], None]) -> None:
    lengths = {name: read(name).count("\n") for name in SOURCES if not name.startswith(GENERATED)}
    for name, lines in lengths.items():
        if lines > LINES_MANY:
            words = f"{name} has {lines} lines; more than {LINES_MANY} are hard to read in one sitting"
            record_property("warning", words)
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


def test_a_file_says_at_its_top_what_it_is() -> None:
    assert [name for name in SOURCES if read(name).strip() and not _is_introduced(name)] == []


def _is_introduced(name: str) -> bool:
    docstring = parsed(name).docstring
    if not docstring:
        return False
    return docstring[0].isupper() or not docstring[0].isalpha() or docstring.startswith(Path(name).stem)


# Files that may import inside a function, and why each must.
IMPORTS_ON_DEMAND = {
    "mailcore/processes.py": "a process loads its own room only",
    "mailcore/cli/commands.py": "a command loads its own module only",
    "mailcore/cli/main.py": "HTTP and TLS are needed for --remote only",
    "mailcore/cli/postfix/main.py": "a command loads its own module only",
    "mailcore/cli/simulate/command.py": "matplotlib takes half a second, and is needed for --chart only",
    "mailcore/events/write/export.py": "pyarrow, as below: it is needed when there is something to write",
    "mailcore/events/write/windows.py": "as above",
    "mailcore/events/feed/feed.py": "pyarrow, as below",
    "mailcore/events/read/archive.py": "pyarrow takes half a second and 50 MB, and is needed when there is a file to read",
    "mailcore/control/shard_clients.py": "a node with one queue needs no way to ask several",
    "mailcore/control/client.py": "a command needs the types of its own operation; those of all after a failure only",
    "mailcore/control/keeping.py": "cryptography takes 10 MB, and is needed for a certificate or a key only",
    "mailcore/control/kept_maps.py": "a control process that rewrites no address does not load what reads maps",
    "mailcore/config/certificates.py": "each command loads the settings, and few of them a certificate",
    "mailcore/config/tls.py": "as for certificates",
    "appliance/accounts/apps.py": "Django has no models before ready()",
}

# Files that name a module of ours by a string, because what they configure asks for a string.
NAMES_IN_STRINGS = {
    "mailcore/control/effects.py": "a room above it, which its child alone loads",
    "appliance/settings.py": "Django's settings",
    "appliance/urls.py": "Django's include() and handlers",
    "appliance/asgi.py": "DJANGO_SETTINGS_MODULE",
    "appliance/common/serving.py": "uvicorn imports the application in each of its processes",
    "appliance/celery.py": "DJANGO_SETTINGS_MODULE, and Celery's search for tasks",
    "appliance/accounts/apps.py": "Django's name of an app, and the site of its administration",
    "appliance/reports/migrations/0001_schedules.py": "Celery's names of tasks, in the database",
    "appliance/reports/runs.py": "Celery's name of a task; tasks.py imports this file",
    "appliance/reports/nights.py": "Celery's --app",
    "mailcore/cli/report.py": "DJANGO_SETTINGS_MODULE; the core imports nothing of the portal",
    "mailcore/doctor/portal.py": "DJANGO_SETTINGS_MODULE; the core imports nothing of the portal",
}


def test_imports_stand_at_the_top_and_name_what_they_take() -> None:
    found = []
    for name in PROGRAMS:
        inner = [] if name in IMPORTS_ON_DEMAND else parsed(name).inner_imports
        found += [f"{name}:{line}: an import inside a function" for line in inner]
        found += [f"{name}:{line}: a star import" for line in parsed(name).star_imports]
    assert found == []


def test_no_string_names_a_module() -> None:
    """A string hides an import from mypy and from the import contracts; ``module.__name__`` says the same."""
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in SOURCES}
    modules.remove("manage")  # "manage.py" is the name of a program
    found = [
        f"{name}:{line}: {text}"
        for name in SOURCES
        if name.startswith(("mailcore/", "appliance/"))
        and name not in NAMES_IN_STRINGS
        and not name.endswith("/apps.py")
        for line, text in parsed(name).strings
        if not modules.isdisjoint((text, text.rpartition(".")[0], text.rstrip(".")))
    ]
    assert found == []


def test_the_lists_of_exceptions_name_files_that_need_them() -> None:
    for name in IMPORTS_ON_DEMAND:
        assert re.search(r"^ {4,}(from|import) ", read(name), re.MULTILINE), name
    for name in NAMES_IN_STRINGS:
        assert re.search(r"[\"'](mailcore|appliance)\.\w", read(name)), name


def test_no_files_import_each_other_in_a_circle() -> None:
    """Not for types alone either: two files that need each other's names are one, or lack a Protocol between them."""
    graph = grimp.build_graph("mailcore", "appliance", cache_dir=None, exclude_type_checking_imports=False)
    left = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    before = -1
    while before != len(left):  # take away what imports none of those left, or is imported by none: circles stay
        before = len(left)
        imported = set().union(*left.values())
        left = {name: imports for name, imports in left.items() if name in imported and imports & left.keys()}
    assert sorted(left) == []


def test_no_line_of_a_template_is_longer_than_160_characters() -> None:
    templates = [name for name in FILES if name.startswith("templates/")]
    lines = [(name, number, len(line)) for name in templates for number, line in enumerate(read(name).splitlines(), 1)]
    assert templates
    assert [each for each in lines if each[2] > TEMPLATE_COLUMNS_MAX] == []


def test_a_file_is_named_for_one_noun() -> None:
    bad = re.compile(r"(^|_)(utils?|helpers?|misc|common|stuff)$")
    assert [name for name in FILES if bad.search(Path(name).stem) or set(Path(name).parts) & {"utils", "helpers"}] == []


def test_nothing_is_left_to_do_in_a_comment() -> None:
    left = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
    assert [name for name in FILES if name.endswith((".py", ".md", ".toml")) and left.search(read(name))] == []


def test_nothing_names_a_machine_or_a_registry() -> None:
    """A path below somebody's home or work directory, or where packages were fetched from."""
    places = re.compile(
        r"(?<![\w.<])/(work|home/\w+|root|tmp|opt(?!/waypost)|Users)/[\w.]|https?://[\w.]*(pypi|pythonhosted|artifact|nexus)"
    )
    texts = (".py", ".md", ".toml", ".txt", ".lock", ".sh", ".conf")
    named = [name for name in FILES if name.endswith(texts) or "." not in Path(name).name]
    assert [(name, found.group()) for name in named if (found := places.search(read(name)))] == []


def test_a_thing_is_called_by_its_word_in_the_glossary() -> None:
    found = [
        f"{name}: {match.group()!r} is called {word} here"
        for name in SOURCES
        if name.startswith("mailcore/")
        for synonym, word in SYNONYMS.items()
        if (match := re.search(synonym, read(name), re.IGNORECASE))
    ]
    assert found == []


def test_decisions_are_numbered_once_and_stand_in_the_form() -> None:
    names = sorted(Path(name).name for name in FILES if name.startswith("docs/decisions/"))
    assert all(re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", name) for name in names), names
    numbers = [name[:4] for name in names]
    assert len(numbers) == len(set(numbers)), f"a number is taken twice: {names}"


def test_a_test_stands_where_its_source_stands() -> None:
    for house, mirror in (("mailcore/", "tests/"), ("appliance/", "tests/appliance/")):
        inside = [Path(name).relative_to(house).parts for name in PROGRAMS if name.startswith(house)]
        rooms = {parts[0] for parts in inside if len(parts) > 1}
        tested = {Path(name).relative_to(mirror).parts[0] for name in PROGRAMS if name.startswith(mirror)}
        assert rooms <= tested, f"no tests for {sorted(rooms - tested)}"


def test_what_is_not_ours_has_its_licence_beside_it() -> None:
    vendored = {str(Path(name).parent) for name in FILES if name.startswith("static/vendor/")}
    assert vendored
    assert [folder for folder in vendored if f"{folder}/LICENSE" not in FILES] == []
