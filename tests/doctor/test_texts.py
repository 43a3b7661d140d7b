"""Every text of the doctor, read from its source, as a golden file: all findings and remedies, with {names} for values.

A finding that needs a broken disk is in it as well as one that every host gives; what stands in braces is the expression that
is filled in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.golden_files import Golden
from tests.test_tidy import PROGRAMS, read

SOURCES = [*(name for name in PROGRAMS if name.startswith("mailcore/doctor/")), "appliance/reports/doctor.py"]
STATES = {"good", "warn", "bad", "not_known"}
NO_TEXT = re.compile(r"\^|-c |%Z|SELECT ")  # patterns and commands


def expression(node: ast.AST) -> str:
    """An expression in braces; with one kind of quotes, because Python's versions choose differently."""
    return "{" + ast.unparse(node).replace('"', "'") + "}"


def text_of(node: ast.expr) -> str:
    """A string as it stands in the source; an f-string with its expressions in braces; "" for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(
                expression(part.value) if isinstance(part, ast.FormattedValue) else text_of(part) for part in parts
            )
        case ast.BinOp(left=left, right=right):
            return text_of(left) + (text_of(right) or expression(right)) if text_of(left) else ""
    return ""


def strings(node: ast.AST) -> Iterator[str]:
    """The outermost strings below a node in the order of the source, without docstrings."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
            continue
        text = text_of(child) if isinstance(child, ast.Constant | ast.JoinedStr) else ""
        if text:
            yield text
        else:
            yield from strings(child)


def finding_of(call: ast.Call) -> list[str] | None:
    """Lines for a call that makes a finding; None for other calls."""
    if not isinstance(call.func, ast.Name) or call.func.id not in (*STATES, "finding"):
        return None
    texts = [text_of(argument) or expression(argument) for argument in call.args]
    state = call.func.id
    if state == "finding":  # the portal's, which names the state as its second argument
        state = ast.unparse(call.args[1])
        del texts[1]
    what, found, *remedy = texts
    return [f"{state.lower().replace('_', ' ')}: {what}: {found}", *(f"    Remedy: {text}" for text in remedy)]


def catalogue(source: str) -> Iterator[str]:
    """Findings in the order of the source, then the other texts that are put into them."""
    tree = ast.parse(source)
    in_findings = set()
    calls = sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=lambda node: node.lineno)
    for call in calls:
        lines = finding_of(call)
        if lines is not None:
            yield from lines
            in_findings |= set(strings(call))
    others = [
        text for text in strings(tree) if text not in in_findings and " " in text.strip() and not NO_TEXT.match(text)
    ]
    yield from (f"text: {text}" for text in dict.fromkeys(others))


def test_every_text(golden: Golden) -> None:
    pages = []
    for name in SOURCES:
        lines = list(catalogue(read(name)))
        if lines:
            pages.append("\n".join([f"== {name}", *lines]))
    assert len(pages) > 15
    golden("doctor.txt", "\n\n".join(pages))


def test_the_catalogue_holds_findings_remedies_and_what_is_put_into_them() -> None:
    source = """
REMEDY = "Do this."
def look():
    "Not this."
    found = f"{size} bytes free"
    yield bad("disk", found, REMEDY)
"""
    assert list(catalogue(source)) == [
        "bad: disk: {found}",
        "    Remedy: {REMEDY}",
        "text: Do this.",
        "text: {size} bytes free",
    ]
