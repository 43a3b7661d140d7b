"""Each call of ``ask`` and ``ask_parts`` names the type that its operation answers with; the clients do not compare them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailcore.control.protocol.table import OPERATIONS

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path for room in ("mailcore", "appliance", "bench") for path in (ROOT / room).rglob("*.py"))
ANSWERS = {name: operation.result.__name__ for name, operation in OPERATIONS.items()}


def wrong_types(text: str) -> Iterator[str]:
    """Yields the operations of calls whose type is another than the operation's, with line and type."""
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)) or len(node.args) < 2:
            continue
        operation, result = node.args[:2]
        if node.func.attr not in ("ask", "ask_parts") or not isinstance(operation, ast.Constant):
            continue
        name = ast.unparse(result).rpartition(".")[2]
        if operation.value in ANSWERS and name[:1].isupper() and name != ANSWERS[operation.value]:
            yield f"line {node.lineno}: {operation.value} does not answer with a {name}"


def test_every_call_names_the_type_of_its_operation() -> None:
    found = {path: list(wrong_types(path.read_text(encoding="utf-8"))) for path in MODULES}
    assert not {str(path.relative_to(ROOT)): wrong for path, wrong in found.items() if wrong}


@pytest.mark.parametrize("call", ['core.ask("size", State)', 'core.ask_parts("show", messages.Item, {})'])
def test_a_wrong_type_is_found(call: str) -> None:
    assert len(list(wrong_types(call))) == 1


def test_calls_are_found() -> None:
    asked = [path for path in MODULES if ".ask(" in path.read_text(encoding="utf-8")]
    assert len(asked) > 20
