"""The name that we give to other servers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mailcore.config.host_finder_of import our_name
from mailcore.config.load import load_text
from tests.doctor.sample_host import sample_host


@pytest.mark.parametrize(
    ("receiver", "deliverer", "name"),
    [
        ("", "", socket.gethostname()),
        ("relay.example.com", "", "relay.example.com"),
        ("", "out.example.com", "out.example.com"),
        ("relay.example.com", "out.example.com", "out.example.com"),
    ],
)
def test_our_name_to_other_servers_is_that_of_the_greeting_unless_it_is_set(
    tmp_path: Path, receiver: str, deliverer: str, name: str
) -> None:
    text = f'[receiver]\nhostname = "{receiver}"\n[deliverer]\nhostname = "{deliverer}"\n'
    assert our_name(load_text(tmp_path / "waypost.toml", text)) == name
    assert sample_host(tmp_path, text).helo == name
