"""The description of the API: whole, and as it was (the golden file), because programs are made from it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from appliance.api.openapi import described
from appliance.api.operation import TYPES
from appliance.api.urls import OPERATIONS
from tests.appliance.api.asking import client_with
from tests.golden_files import Golden

pytestmark = pytest.mark.django_db


def test_every_operation_is_described_with_its_answer_its_errors_and_its_scope() -> None:
    found = {
        operation["operationId"]: (method, path, operation)
        for path, methods in described()["paths"].items()
        for method, operation in methods.items()
    }
    assert set(found) == {each.name for each in OPERATIONS}
    for each in OPERATIONS:
        method, path, operation = found[each.name]
        assert (method.upper(), path) == (each.method, f"/api/v1{each.path}")
        assert operation["security"] == [{"Bearer": []}]
        assert operation["summary"]
        assert "Needs " in operation["description"]
        success = [status for status in operation["responses"] if str(status).startswith("2")]
        assert len(success) == 1
        for status, response in operation["responses"].items():
            if each.answer is bytes and status in success:
                continue
            assert response["content"]["application/json"]["schema"]["$ref"].startswith("#/components/schemas/"), status


def test_every_reference_is_there() -> None:
    text = json.dumps(described())
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert named <= set(described()["components"]["schemas"])


def test_no_two_types_have_one_name() -> None:
    """The description has a type once for each name: of two, one would be described as the other."""

    def bodies(kind: type[Any]) -> Iterator[type[Any]]:
        for each in kind.__subclasses__():
            yield each
            yield from bodies(each)

    ours = [each for each in bodies(BaseModel) if each.__module__.startswith("appliance.")]
    modules = {(each.__name__, each.__module__) for each in ours}
    assert len(modules) > 40
    names = Counter(name for name, _ in modules)
    types = [*(each.answer for each in OPERATIONS if each.answer is not bytes), *TYPES]
    names.update(msgspec.json.schema_components(types)[1].keys())
    assert [name for name, count in names.items() if count > 1] == []


def test_the_description_is_answered_to_any_token() -> None:
    response = client_with(set(), "viewer").get("/openapi.json")
    assert response.status_code == 200
    assert json.loads(response.content) == json.loads(json.dumps(described()))


def test_the_description_is_as_it_was(golden: Golden) -> None:
    """What a program relies on: addresses, parameters, the fields of bodies and answers."""
    golden("openapi.txt", "\n".join(_lines()) + "\n")


def _lines() -> Iterator[str]:
    found = described()
    for path, methods in sorted(found["paths"].items()):
        for method, operation in methods.items():
            statuses = " ".join(sorted(map(str, operation["responses"])))
            answer = next(each for status, each in operation["responses"].items() if str(status).startswith("2"))
            yield f"{method.upper()} {path} -> {_type(next(iter(answer['content'].values()))['schema'])} ({statuses})"
            for each in operation["parameters"]:
                needed = " needed" if each["required"] else ""
                yield f"  {each['in']} {each['name']}: {_type(each['schema'])}{needed}"
            for kind, body in operation.get("requestBody", {"content": {}})["content"].items():
                yield f"  body {kind}: {_type(body['schema'])}"
    for name, schema in sorted(found["components"]["schemas"].items()):
        yield name
        needed = schema.get("required", ())
        for field, inner in schema.get("properties", {}).items():
            yield f"  {field}{'' if field in needed else '?'}: {_type(inner)}"


def _type(schema: Any) -> str:
    """The type of a schema in a few words."""
    if not schema:
        return "any"
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return " ".join(map(repr, schema["enum"]))
    inner = schema.get("items", schema.get("additionalProperties"))
    return f"{schema.get('type', 'const')}{f'[{_type(inner)}]' if isinstance(inner, dict) else ''}"
