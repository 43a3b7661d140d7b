"""Which settings the code of a role reads: found in the source, through all that it imports, lazily or not."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = "mailcore.config.settings"


@functools.cache
def tree(module: str) -> ast.Module | None:
    path = ROOT / module.replace(".", "/")
    for each in (path.with_suffix(".py"), path / "__init__.py"):
        if each.is_file():
            return ast.parse(each.read_text())
    return None


def imported(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.ImportFrom) and each.module:
            yield each.module
            yield from (f"{each.module}.{alias.name}" for alias in each.names)
        elif isinstance(each, ast.Import):
            yield from (alias.name for alias in each.names)


def code_of(role: str) -> list[ast.AST]:
    """What the processes of a role may run, but for the supervisor's own."""
    table = tree("mailcore.processes")
    assert table is not None
    functions = {each.name: each for each in table.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    code: list[ast.AST] = []
    found: set[str] = set()
    wanted, seen = [f"_{role}"], set()
    while wanted:
        name = wanted.pop()
        if name in seen or name not in functions:
            continue
        seen.add(name)
        code.append(functions[name])
        wanted += [each.id for each in ast.walk(functions[name]) if isinstance(each, ast.Name)]
        more = list(imported(functions[name]))
        while more:
            module = more.pop()
            if module in found or not module.startswith("mailcore") or module == "mailcore.processes":
                continue
            if (parsed := tree(module)) is not None:
                found.add(module)
                more += imported(parsed)
                if not module.startswith("mailcore.supervisor") and module != SETTINGS:
                    code.append(parsed)
    return code


@functools.cache
def fields_and_properties() -> tuple[set[str], dict[str, set[str]]]:
    parsed = tree(SETTINGS)
    assert parsed is not None
    (settings,) = [each for each in parsed.body if isinstance(each, ast.ClassDef) and each.name == "Settings"]
    fields = {
        each.target.id
        for each in settings.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    read = {
        each.name: {
            one.attr
            for one in ast.walk(each)
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self"
        }
        for each in settings.body
        if isinstance(each, ast.FunctionDef)
    }
    return fields, read


def fields_behind(name: str) -> set[str]:
    """The fields that an attribute of the settings is, or is made of."""
    fields, read = fields_and_properties()
    return {name} if name in fields else {field for other in read.get(name, ()) for field in fields_behind(other)}


def read_by(role: str) -> set[str]:
    """The fields of ``Settings`` that the code of a role reads."""
    found: set[str] = set()
    for parsed in code_of(role):
        for each in ast.walk(parsed):
            if not isinstance(each, ast.Attribute):
                continue
            value = each.value
            name = value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
            if name in ("settings", "_settings"):
                found |= fields_behind(each.attr)
    return found
