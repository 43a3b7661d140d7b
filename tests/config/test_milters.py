"""[[milter]] and the lists of milters, checked at load; and the examples in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mailcore.config.load import ConfigError, load_text
from mailcore.config.milters import milters_of
from mailcore.config.settings import Settings

FAULTS = [
    ("[receiver]\nmilters = 'x'", "2: [receiver] milters must be a list of strings"),
    (
        "[receiver]\nmilters = ['127.0.0.1:11332']",
        '2: [receiver] milters must be "inet:HOST:PORT" or "unix:/PATH", such as',
    ),
    ("[receiver]\nmilters = ['inet:127.0.0.1:0']", '[receiver] milters must be "inet:HOST:PORT"'),
    ("[receiver]\nmilters = ['inet:8891@localhost']", '[receiver] milters must be "inet:HOST:PORT"'),
    ("[receiver]\nmilters = ['unix:run/x.sock']", '[receiver] milters must be "inet:HOST:PORT"'),
    (
        "[receiver]\nmilters = ['unix:/a', 'unix:/a']",
        "2: [receiver] milters must not have a value twice (got 'unix:/a' twice)",
    ),
    ("[[listener]]\naddress = '0.0.0.0:25'\nmilters = ['x']", '3: [[listener]] milters must be "inet:HOST:PORT"'),
    ("milter = 3", "1: milter must be one or more sections, [[milter]] (got 3)"),
    ("[[milter]]\ndefault_action = 'accept'", "1: [[milter]] address must be set, as in the list of milters"),
    ("[[milter]]\naddress = 'unix:/a'", "2: [[milter]] address must be in a list of milters; unix:/a is in none"),
    (
        "[receiver]\nmilters = ['unix:/a']\n[[milter]]\naddress = 'unix:/a'\n[[milter]]\naddress = 'unix:/a'",
        "6: [[milter]] address must be another one; unix:/a has a section already",
    ),
    (
        "[receiver]\nmilters = ['unix:/a']\n[[milter]]\naddress = 'unix:/a'\ndefault_action = 'ignore'",
        '5: [[milter]] default_action must be "tempfail", "accept", "reject" or "quarantine" (got \'ignore\')',
    ),
]


def settings_of(text: str) -> Settings:
    return load_text(Path("/etc/waypost/waypost.toml"), text)


@pytest.mark.parametrize(("text", "what"), FAULTS, ids=[text[:50].replace("\n", " ") for text, _ in FAULTS])
def test_a_fault_of_milters_names_its_line(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_of(text)
    assert what in str(error.value)


def test_a_listener_has_the_milters_of_the_receiver_or_its_own_or_none() -> None:
    text = "[receiver]\nlisten = ['127.0.0.1:25']\nmilters = ['inet:[::1]:11332', 'unix:/run/a']\n"
    for number, own in enumerate(("", "milters = []\n", "milters = ['unix:/run/b']\n"), 1):
        text += f"[[listener]]\naddress = '127.0.0.1:{number}'\n{own}"
    settings = settings_of(text + "[[milter]]\naddress = 'unix:/run/a'\ndefault_action = 'accept'\n")
    both = ("inet:[::1]:11332", "unix:/run/a")
    assert [each.milters for each in settings.all_listeners] == [both, both, (), ("unix:/run/b",)]
    one, two = milters_of(both, settings.milter)
    assert (one.address, one.default_action) == (both[0], "tempfail")
    assert (two.address, two.default_action) == (both[1], "accept")
    assert (one.connect_timeout_s, one.command_timeout_s, one.content_timeout_s) == (30, 30, 300)  # Postfix's


def test_the_examples_in_the_documentation_are_good_settings() -> None:
    page = (Path(__file__).parents[2] / "docs/milters.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(examples) >= 4
    for example in examples:
        certificate = "[receiver]\ntls_certificate = 'c.pem'\ntls_key = 'k.pem'\n"
        settings = settings_of(example if "[receiver]" in example else certificate + example)
        assert any(each.milters for each in settings.all_listeners)
