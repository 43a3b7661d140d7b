"""Every fault of the control socket and of its client, read from the source, as a golden file: the words change on purpose.

What stands in braces is the expression that is filled in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.doctor.test_texts import expression, text_of
from tests.golden_files import Golden
from tests.test_tidy import PROGRAMS, read

# Errors that become a fault on the way to the client.
BASES = {"Fault", "FaultError", "WrongArgument", "CursorError", "CutoffError", "RouteError"}


def fault_classes() -> set[str]:
    """The names of all classes of faults."""
    classes = [
        (node.name, {base.id for base in node.bases if isinstance(base, ast.Name)})
        for name in PROGRAMS
        if name.startswith("mailcore/")
        for node in ast.walk(ast.parse(read(name)))
        if isinstance(node, ast.ClassDef)
    ]
    names, before = set(BASES), 0
    while len(names) > before:
        before = len(names)
        names |= {name for name, bases in classes if bases & names}
    return names


def faults(source: str, classes: set[str]) -> Iterator[str]:
    """A line for each fault that is made, in the order of the source: its class, its text, its code."""
    tree = ast.parse(source)
    texts = {
        target.id: text_of(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and text_of(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        assert isinstance(call.func, ast.Name)
        if call.func.id not in classes or not call.args:
            continue
        at = 1 if call.func.id == "Fault" else 0
        text = call.args[at] if len(call.args) > at else call.args[0]
        said = text_of(text) or (texts.get(text.id, "") if isinstance(text, ast.Name) else "") or expression(text)
        code = ast.unparse(call.args[0]) if at else ""
        code = next((ast.unparse(each.value) for each in call.keywords if each.arg == "code"), code)
        yield f"{call.func.id}{f' ({code})' if code else ''}: {said}"


def test_every_fault(golden: Golden) -> None:
    classes = fault_classes()
    pages = []
    for name in PROGRAMS:
        if name.startswith("mailcore/"):
            lines = list(faults(read(name), classes))
            if lines:
                pages.append("\n".join([f"== {name}", *lines]))
    assert len(pages) > 15
    golden("faults.txt", "\n\n".join(pages))


def test_the_list_holds_text_and_code() -> None:
    source = """
message = f"no {name}"
raise NotFound(message, argument="name")
raise Refused("not now", code=Code.BUSY)
Fault(Code.INVALID, f"no {name!r}")
"""
    assert list(faults(source, {"NotFound", "Refused", "Fault"})) == [
        "NotFound: no {name}", "Refused (Code.BUSY): not now", "Fault (Code.INVALID): no {name}",
    ]  # fmt: skip
