"""Makes the typed Python client from the OpenAPI document of the HTTP API.

    python clients/python/generate.py openapi.json     writes waypost_client/models.py and waypost_client/operations.py

tests/appliance/api/test_client.py does the same with the API as it is, and fails when the files here are others.

Law: every schema becomes a type and every operation a method, or this fails: a keyword that it does not know is an error.
"""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["made"]

HERE = Path(__file__).parent
LINE = 120
HEAD = """{}

Made by clients/python/generate.py from the OpenAPI document; do not edit it.
"""
# Keywords that limit a value, which the server checks, and those for people.
LIMITS = frozenset(
    (
        "title", "description", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength",
        "maxLength", "maxProperties", "minProperties", "minItems", "maxItems", "pattern", "format", "discriminator",
    )
)  # fmt: skip
PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
LEFT_OUT = "Command line"  # operations of this tag belong to `waypost --remote` (docs/api.md)
REF = "#/components/schemas/"
QUOTES = '"' * 3


class NotKnown(Exception):
    """Says which part of the OpenAPI document is not known here."""


def made(document: Mapping[str, Any]) -> dict[str, str]:
    """Returns the text of each file of the client that is made. Raises NotKnown."""
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if operation["tags"] != [LEFT_OUT]
    ]
    schemas = document["components"]["schemas"]
    bodies = _reached([each["requestBody"] for *_, each in operations if "requestBody" in each], schemas)
    answers = _reached([each["responses"] for *_, each in operations], schemas)
    tags = dict(_tags([*(schemas[name] for name in (*bodies, *answers))]))
    return {
        "models.py": _formatted(_models(schemas, bodies, answers, tags)),
        "operations.py": _formatted(_operations(operations)),
    }


def _reached(values: Any, schemas: Mapping[str, Any]) -> dict[str, None]:
    """Returns the names of the schemas to which values refer, directly or not, in order."""
    found: set[str] = set()
    waiting = [values]
    while waiting:
        for name in re.findall(f'"{REF}([^"]+)"', json.dumps(waiting.pop())):
            if name not in found:
                found.add(name)
                waiting.append(schemas[name])
    return dict.fromkeys(sorted(found))


def _tags(values: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields the schemas of which one of several is chosen by a field: their names, that field, and its value."""
    if isinstance(values, dict):
        if "discriminator" in values:
            field = values["discriminator"]["propertyName"]
            for value, reference in values["discriminator"]["mapping"].items():
                yield reference.removeprefix(REF), (field, value)
        values = list(values.values())
    if isinstance(values, list):
        for each in values:
            yield from _tags(each)


def _type(schema: Any) -> str:
    """Returns the Python type of a schema. Raises NotKnown."""
    known = LIMITS | {"$ref", "type", "enum", "const", "anyOf", "items", "additionalProperties"}
    if unknown := set(schema) - known:
        raise NotKnown(f"{sorted(unknown)} in {schema}")
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(REF)
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return f"Literal[{', '.join(json.dumps(each) for each in values)}]"
    match schema.get("type"):
        case "array":
            return f"list[{_type(schema['items'])}]"
        case "object":
            inner = schema.get("additionalProperties")
            return f"dict[str, {_type(inner) if isinstance(inner, dict) and inner else 'Any'}]"
        case None:
            return "Any"
        case str(kind) if kind in PLAIN:
            return PLAIN[kind]
    raise NotKnown(f"{schema}")


def _models(
    schemas: Mapping[str, Any],
    bodies: Mapping[str, None],
    answers: Mapping[str, None],
    tags: Mapping[str, tuple[str, str]],
) -> str:
    names = sorted({*bodies, *answers})
    lines = [_top("The types of bodies and answers of the HTTP API.")]
    lines.append(
        "import enum\nfrom typing import Any, Literal\n\nimport msgspec\nfrom msgspec import UNSET, UnsetType\n"
    )
    lines.append(f"__all__ = {json.dumps(names)}\n")
    for name in names:
        schema = schemas[name]
        if "enum" in schema:
            lines.append(f"class {name}(enum.StrEnum):\n{_text(schema)}\n")
            lines += [f"    {_constant(each)} = {json.dumps(each)}" for each in schema["enum"]]
            lines.append("")
            continue
        if schema.get("type") != "object":
            raise NotKnown(f"{name}: {schema}")
        tagged = tags.get(name)
        options = "kw_only=True" + (f', tag_field="{tagged[0]}", tag="{tagged[1]}"' if tagged else "")
        lines.append(f"class {name}(msgspec.Struct, {options}):\n{_text(schema)}\n")
        lines += [
            _field(each, value, each in schema.get("required", ()), is_body=name in bodies)
            for each, value in schema.get("properties", {}).items()
            if tagged is None or each != tagged[0]
        ]
        lines.append("")
    return "\n".join(lines)


def _constant(value: str) -> str:
    """Returns the name of a member of an enumeration."""
    return re.sub(r"\W", "_", value).upper()


def _field(name: str, schema: Any, is_needed: bool, *, is_body: bool) -> str:
    """Returns the line of a field. What a body leaves out is not sent, so that the server's default counts."""
    kind = _type(schema)
    mine = f"{name}_" if keyword.iskeyword(name) else name
    default = ""
    if not is_needed:
        if is_body or "default" not in schema:
            none = " | None" if kind.endswith(" | None") else ""
            kind, default = f"{kind.removesuffix(none)} | UnsetType{none}", "UNSET"
        else:
            default = repr(schema["default"])
    if mine != name:
        default = f"msgspec.field(name={json.dumps(name)}{f', default={default}' if default else ''})"
    return f"    {mine}: {kind}{f' = {default}' if default else ''}"


def _top(words: str) -> str:
    return f"{QUOTES}{HEAD.format(words)}{QUOTES}\n\nfrom __future__ import annotations\n"


def _text(schema: Mapping[str, Any]) -> str:
    """Returns the docstring of a class."""
    words = " ".join(str(schema.get("description") or schema.get("title") or "").split())
    return _docstring(words or "A value.", 4)


def _docstring(words: str, indent: int) -> str:
    escaped = words.replace("\\", "\\\\").replace(QUOTES, "'''")
    space = " " * indent
    wrapped = textwrap.wrap(escaped, LINE - indent - 6)
    if len(wrapped) == 1:
        closing = " " if wrapped[0].endswith('"') else ""
        return f"{space}{QUOTES}{wrapped[0]}{closing}{QUOTES}"
    return f"{space}{QUOTES}" + f"\n{space}".join(wrapped) + f"\n{space}{QUOTES}"


def _operations(operations: list[tuple[str, str, Any]]) -> str:
    lines = [_top("The operations of the HTTP API, a method each.")]
    lines.append("from collections.abc import Sequence\nfrom typing import Any, Literal\n")
    lines.append("from waypost_client import models\nfrom waypost_client.transport import Transport\n")
    lines.append('__all__ = ["Waypost"]\n\n')
    lines.append("class Waypost(Transport):")
    lines.append(f"    {QUOTES}Asks a Waypost by its HTTP API. Each method raises WaypostError.{QUOTES}\n")
    lines += [_method(*each) for each in operations]
    text = "\n".join(lines)
    for name, module in (("Any", "typing"), ("Literal", "typing")):  # imported where they are used
        if len(re.findall(rf"\b{name}\b", text)) == 1:
            text = re.sub(rf"(from {module} import .*?)(, {name}|{name}, )", r"\1", text)
    return text


def _method(path: str, method: str, operation: Any) -> str:
    """Returns the method of an operation."""
    inside, named, query = ["self"], [], []
    for each in operation["parameters"]:
        kind = _of_models(_type(each["schema"]))
        if each["in"] == "path":
            inside.append(f"{each['name']}: {kind}")
        elif each["in"] == "query":
            query.append(each["name"])
            kind = kind.replace("list[", "Sequence[")
            named.append(f"{each['name']}: {kind}" if each["required"] else f"{each['name']}: {kind} | None = None")
    named.sort(key=lambda each: each.endswith("= None"))
    body = operation.get("requestBody", {}).get("content", {})
    kinds = {
        "bytes" if kind != "application/json" else _of_models(_type(each["schema"])) for kind, each in body.items()
    }
    if kinds:
        inside.append(f"body: {' | '.join(sorted(kinds))}")
    if method == "post":
        named.append("key: str | None = None")
    answer = next(each for status, each in operation["responses"].items() if str(status).startswith("2"))
    ((kind, content),) = answer["content"].items()
    result = _of_models(_type(content["schema"])) if kind == "application/json" else "bytes"
    given = ", ".join([*inside, *(["*", *named] if named else [])])
    places = re.sub(r"\{(\w+)\}", r"{self.quoted(\1)}", path)
    passed = [json.dumps(method.upper()), f'{"f" if places != path else ""}"{places}"', result]
    if query:
        passed.append("query={" + ", ".join(f'"{each}": {each}' for each in query) + "}")
    if kinds:
        passed.append("body=body")
    if method == "post":
        passed.append("key=key")
    summary = " ".join(" ".join([operation["summary"], operation.get("description", "")]).split())
    return (
        f"    def {operation['operationId']}({given}) -> {result}:\n{_docstring(summary, 8)}\n"
        f"        return self.ask({', '.join(passed)})\n"
    )


def _of_models(kind: str) -> str:
    """Returns a type with the names of schemas as those of the module of models."""
    return re.sub(r'(?<!")\b([A-Z]\w+)\b(?!")', lambda found: _named(found.group(1)), kind)


def _named(name: str) -> str:
    return name if name in ("Any", "None", "Literal", "Sequence") else f"models.{name}"


def _formatted(text: str) -> str:
    """Returns the text as ruff formats it, with its imports in order. Raises NotKnown."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--no-cache",
        "--line-length",
        str(LINE),
        "--stdin-filename",
        "x.py",
        "-",
    ]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)  # noqa: S603  # ruff
    if done.returncode:
        raise NotKnown(f"{done.stderr}\n{text}")
    return done.stdout


if __name__ == "__main__":
    for _name, _written in made(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))).items():
        (HERE / "waypost_client" / _name).write_text(_written, encoding="utf-8")
