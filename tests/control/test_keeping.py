"""A kept file is removed from this node alone, and the answer and the command say where else it may be."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mailcore.cli import kept as command
from mailcore.cli.main import main
from mailcore.config.nodes import Nodes
from mailcore.control.keeping import Keeping
from mailcore.control.kept_store import KeptStore
from mailcore.control.protocol.kept import KeptMade, KeptRemoveArguments

ELSEWHERE = "other nodes that have the file keep it; remove it there, too"


async def in_thread(work: Any, *arguments: Any) -> Any:
    return work(*arguments)


async def removed(home: Path, nodes: Nodes) -> KeptMade:
    settings = cast(Any, SimpleNamespace(home=home, nodes=nodes))
    file = KeptStore(home).put("map", "aliases", b"a@example.org  b@example.org\n")
    managing = SimpleNamespace(lock=asyncio.Lock(), documents=lambda: ({}, []))
    keeping = Keeping(cast(Any, SimpleNamespace(in_thread=in_thread)), settings, cast(Any, managing))
    answers = keeping.answers["kept_remove"](cast(Any, None), KeptRemoveArguments(file=str(file)))
    (made,) = [each async for each in answers]
    assert not KeptStore(home).path(file).exists()
    return cast(KeptMade, made)


async def test_a_node_names_the_others_and_the_database_and_a_host_that_is_alone_nothing(tmp_path: Path) -> None:
    assert (await removed(tmp_path, Nodes())).elsewhere == ""
    elsewhere = (await removed(tmp_path, Nodes(database="host=a,b dbname=x user=x"))).elsewhere
    assert "waypost kept remove at each other node" in elsewhere
    assert "the database keeps it, encrypted, while the history of settings names it" in elsewhere


@pytest.mark.parametrize(
    ("elsewhere", "out", "err"),
    [("", "kept:map/a.1 is removed\n", ""), (ELSEWHERE, "kept:map/a.1 is removed from this node\n", f"waypost: {ELSEWHERE}\n")],
)  # fmt: skip
def test_the_command_says_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], elsewhere: str, out: str, err: str
) -> None:
    answer = KeptMade(faults=[], elsewhere=elsewhere)
    control = SimpleNamespace(ask=lambda *_: answer)
    monkeypatch.setattr(command, "control_client", lambda _: nullcontext(control))
    assert main(["kept", "remove", "kept:map/a.1"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (out, err)
