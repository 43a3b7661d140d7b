"""Plain English in everything a person reads: words that make a text hard to read do not come back.

The reader is an on-call engineer at three in the morning, and English may be her third language: subject, verb, object; name
the thing; use the standard term; say what to do. A word list cannot judge a text, but each of these was found in one that
nobody understood at the first reading.

The docstring of a public function or method begins with a verb in the third person: it says what the function does.

The words are looked for in string constants, docstrings and comments of Python files, and in the whole of pages, templates,
scripts and tasks. ``python -m tests.test_language mailcore/queue`` lists the lines of a room.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_tidy import FILES, read

# pattern -> what to write instead
PHRASES = {
    r"\banew\b": "again; rebuild; a new …",
    r"\b(who|what|which)ever\b|\bhowever (many|much|long|often|old|big|slow)\b": "name the person or the thing: any …",
    # "everybody" in quotes is a value of require_totp
    r"(?!(?<=\")everybody\")\b(no|some|any|every)body\b": "name the role: the operator, the client, no process",
    r"\bso (many|much|long|few)\b(?! as\b)": "a number, or: this many",
    r"\b(told of|unless told|(is|are|was|were|be|been) told)\b": "is reported, is logged, by default",
    r"(?<!there )(?<!there' )\b(is|are|was|were) no (?!(longer|more|less|such|other|need|way)\b)": "is not a …",
    r"\bput out\b": "signed out, disabled",
    r"\btempers?\b": "behaviour",
    r"\b(patient|examination)s?\b": "host, checks",
    r"\b(by|of) itself\b": "automatically",
    r"\bfor want of\b": "because … is missing",
    r"\bof (old|chance)\b": "earlier; random",
    r"\bthe outside\b": "other servers, the Internet",
    r"\bstrangers?\b": "other users, untrusted input",
    r"\bstands? (alone|here|there|in|on|below|above|beside|under|before|after|at)\b": "is",
    r"\b(goes|go|went|gone) on\b": "continues",
    r"\btak(e|es|en|ing) back\b|\bback from a\b": "remove, restore",
    r"\bwholly\b": "completely",
    r"\bfor ever\b": "forever, permanently",
    r"\b(just|but) for\b": "except for",
    r"\bmay want\b": "needs up to",
    r"\b(is|are) another('s)?\b(?! \w)": "name it: of another host",
    r"\bas (well|good|bad) as before\b": "unchanged",
    r"\b(no|any) more than\b": "at most; say what it does",
    r"\bhas none\b": "is missing",
}
# In the third person: Returns, Says. "Rows of a table" begins with a noun.
VERB = re.compile(r"[A-Z][a-z]*[a-rt-z]s\b(?! of\b)")
NO_VERBS = {
    "Always", "Columns", "Deliveries", "Entries", "Fields", "Has", "Its", "Lines", "Recipients", "Rows", "Seconds", "Slots",
    "Tables", "This", "Transports",
}  # fmt: skip
CLAUSE = re.compile(r"(?:\A\s*|(?<=[.!?:]\s)|(?<=\n\n))(?:Who|What|Whose)\b(?!'s\b)[^.?!]*(?:[.!]|\Z)")
CLAUSE_AT_START = re.compile(r"\A(?:who|what|whose) [a-z][^?]*\Z", re.DOTALL)  # of a message or a help
ADVICE_OF_CLAUSE = "begin with the noun: The operator who …, Files that …"

READ = ("mailcore/", "appliance/", "templates/", "static/appliance/", "docs/", "ansible/", "bench/")
ENDINGS = (".py", ".md", ".html", ".txt", ".js", ".yml", ".yaml", ".toml", ".j2", ".sh", ".conf")
ALONE = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "GLOSSARY.md", "CONTRIBUTING.md", "run", "test", "make-release",
         "environment.sh", "waypost.toml", "demo.toml")  # fmt: skip
# The texts of decisions are history. Lines that name a phrase as a phrase (a system user, a quotation) end in this.
HISTORY = ("docs/decisions/",)
QUOTED = "lang: quoted"


class Hit(NamedTuple):
    line: int
    phrase: str
    instead: str


def hits_in(text: str, line: int = 1) -> Iterator[Hit]:
    """Phrases in a text that begins at ``line`` of its file."""
    for pattern, instead in PHRASES.items():
        for found in re.finditer(pattern, text, re.IGNORECASE):
            yield Hit(line + text.count("\n", 0, found.start()), found.group(), instead)
    for pattern_of_clause in (CLAUSE, CLAUSE_AT_START):
        for found in pattern_of_clause.finditer(text):
            yield Hit(line + text.count("\n", 0, found.start()), found.group()[:60], ADVICE_OF_CLAUSE)


def texts_of_python(source: str) -> Iterator[tuple[str, int]]:
    """String constants, docstrings and comments, each with the line it begins at."""
    tree = ast.parse(source)
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if node in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            yield (
                "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values),
                node.lineno,
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# "), token.start[0]


def hits_of(name: str) -> list[Hit]:
    """All phrases of a file, each once, in the order of its lines."""
    source = read(name)
    texts = texts_of_python(source) if name.endswith(".py") else [(source, 1)]
    hits = {hit for text, line in texts for hit in hits_in(text, line)}
    quoted = {number for number, line in enumerate(source.splitlines(), 1) if QUOTED in line}
    return sorted(hit for hit in hits if hit.line not in quoted)


def room_of(name: str) -> str:
    """Returns the part of the tree that is checked as one: a room of mailcore or appliance, a directory, or a page."""
    parts = Path(name).parts
    return name if len(parts) < 3 or parts[0] == "docs" else "/".join(parts[:2])


def begins_with_verb(docstring: str) -> bool:
    """Returns whether a docstring says what a function does: "Returns …", "Takes …"; not "Whether …", "The …", "Of …"."""
    found = VERB.match(docstring)
    return found is not None and found.group() not in NO_VERBS


def docstrings_without_verb(source: str) -> Iterator[tuple[int, str, str]]:
    """Yields line, name and first line of the docstring of each public function and method that begins otherwise."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            docstring = ast.get_docstring(node)
            if docstring is not None and not begins_with_verb(docstring):
                yield node.lineno, node.name, docstring.partition("\n")[0]


CHECKED = [
    name
    for name in FILES
    if ((name.startswith(READ) and name.endswith(ENDINGS)) or name in ALONE)
    and not name.startswith(HISTORY)
    and "/migrations/" not in name
]
ROOMS = sorted({room_of(name) for name in CHECKED})


def hits_of_room(room: str) -> list[str]:
    return [
        f"{name}:{hit.line}: {hit.phrase!r}; write: {hit.instead}"
        for name in CHECKED
        if room_of(name) == room
        for hit in hits_of(name)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_written_in_plain_english(room: str) -> None:
    hits = hits_of_room(room)
    assert not hits, "\n" + "\n".join(hits)


@pytest.mark.parametrize("room", [room for room in ROOMS if room.startswith(("mailcore/", "appliance/"))])
def test_a_docstring_says_what_the_function_does(room: str) -> None:
    found = [
        f"{name}:{line}: {function}: {docstring!r}; begin with a verb: Returns …, Writes …"
        for name in CHECKED
        if room_of(name) == room and name.endswith(".py")
        for line, function, docstring in docstrings_without_verb(read(name))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("text", ["Returns the day.", "Does nothing.", "Says whether it is over.", "Counts"])
def test_a_verb_is_seen(text: str) -> None:
    assert begins_with_verb(text)


@pytest.mark.parametrize(
    "text",
    ["", "Whether it is over.", "Return the day.", "The day.", "This is the day.", "Its day.", "Rows of a table.",
     "Names of tables.", "Django's own.", "Progress, then the end.", "Lines that were lost.", "returns the day"],
)  # fmt: skip
def test_a_docstring_without_a_verb_is_seen(text: str) -> None:
    assert not begins_with_verb(text)


def test_only_public_functions_and_methods_must_begin_with_a_verb() -> None:
    source = "class A:\n  def b(self):\n    'The b.'\n  def _c(self):\n    'The c.'\n  def d(self): ...\n"
    assert list(docstrings_without_verb(source)) == [(2, "b", "The b.")]


@pytest.mark.parametrize(
    "text",
    [
        "the file is made anew",
        "Nobody waits for it.",
        "vm: is no full name",
        "Who is signed out hears no more.",
        "It ends. What was queued stays.",
        "what is there gets another name; else it is refused",
        "messages with a temper",
        "however long it takes",
    ],
)
def test_a_phrase_is_seen(text: str) -> None:
    assert list(hits_in(text))


@pytest.mark.parametrize(
    "text",
    ["There is no route.", "What now?", "The client that signs out gets no more events.", "it is no longer there"],
)
def test_plain_english_passes(text: str) -> None:
    assert list(hits_in(text)) == []


def test_strings_docstrings_and_comments_are_read_and_a_quotation_is_not() -> None:
    source = f'''"""Nobody reads."""\nx = f"made anew {{1}}"  # whoever\ny = "run as nobody"  # {QUOTED}\n'''
    assert list(texts_of_python(source)) == [
        ("Nobody reads.", 1),
        ("made anew …", 2),
        ("run as nobody", 3),
        ("whoever", 2),
        (QUOTED, 3),
    ]


if __name__ == "__main__":
    for line in [line for room in ROOMS for line in hits_of_room(room) if line.startswith(tuple(sys.argv[1:]))]:
        print(line)
