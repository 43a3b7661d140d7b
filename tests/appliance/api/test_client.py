"""The Python client is what its generator makes of the API as it is, and its types are strict."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from typing import Any

import pytest

from appliance.api.openapi import described
from appliance.api.urls import OPERATIONS
from tests.golden_files import Golden
from tests.test_tidy import ROOT

CLIENT = ROOT / "clients" / "python"


def made(document: Any) -> dict[str, str]:
    files: dict[str, str] = runpy.run_path(str(CLIENT / "generate.py"))["made"](document)
    return files


def test_the_client_is_up_to_date(golden: Golden) -> None:
    for name, text in made(json.loads(json.dumps(described()))).items():
        golden(name, text, below=CLIENT / "waypost_client")


def test_every_operation_is_a_method_but_those_of_the_command_line() -> None:
    text = (CLIENT / "waypost_client" / "operations.py").read_text()
    methods = {line.split("(")[0].removeprefix("    def ") for line in text.splitlines() if line.startswith("    def ")}
    assert methods == {each.name for each in OPERATIONS if each.tag != "Command line"}


def test_what_the_generator_does_not_know_is_an_error() -> None:
    document = json.loads(json.dumps(described()))
    document["components"]["schemas"]["Sent"]["properties"]["queue_ids"] = {"oneOf": [{"type": "string"}]}
    with pytest.raises(Exception, match="oneOf"):
        made(document)


def test_its_types_are_strict() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "waypost_client", "generate.py"]
    done = subprocess.run(command, cwd=CLIENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
