"""[authenticity], checked at load; and the examples in the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mailcore.config.authenticity import authenticity_warnings
from mailcore.config.load import ConfigError, load_text
from mailcore.config.settings import Settings

FAULTS = [
    ("evaluate = 'on'", '2: [authenticity] evaluate must be "off", "mx" or "all" (got \'on\')'),
    ("authserv_id = 'a b'", "2: [authenticity] authserv_id must be a domain, such as mx.example.org (got 'a b')"),
    ("rsa_bits_min = 512", "2: [authenticity] rsa_bits_min must be between 1024 and 4096 bits (got 512)"),
    ("timeout_s = 0", "2: [authenticity] timeout_s must be between 1 and 120 seconds (got 0)"),
    ("dmarc = 'hold'", '2: [authenticity] dmarc must be "none", "quarantine" or "reject" (got \'hold\')'),
]


ARC_FAULTS = [
    ("[arc]\ndomain = 'example.org'", "1: [arc] selector must be set, as domain is"),
    ("[arc]\ndomain = 'example.org'", "1: [arc] key must be set, as domain is"),
    ("[arc]\nkey = 'a.pem'", "1: [arc] domain must be set, as key is"),
    (
        "[arc]\ndomain = 'example.org'",
        '[arc] domain needs results to seal; set evaluate in [authenticity] to "mx" or "all"',
    ),
    ("[arc]\ndomain = 'a b'", "2: [arc] domain must be a domain, such as example.org (got 'a b')"),
]


def settings_of(text: str) -> Settings:
    return load_text(Path("/etc/waypost/waypost.toml"), text)


@pytest.mark.parametrize(("line", "what"), FAULTS)
def test_a_fault_names_its_line_and_what_is_allowed(line: str, what: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_of("[authenticity]\n" + line)
    assert what in str(error.value)


@pytest.mark.parametrize(("text", "what"), ARC_FAULTS)
def test_a_fault_of_the_seal_names_its_line(text: str, what: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_of(text)
    assert what in str(error.value)


def test_the_key_of_the_seal_is_looked_for_beside_the_file() -> None:
    settings = settings_of(
        "[authenticity]\nevaluate = 'mx'\n[arc]\ndomain = 'Example.ORG'\nselector = 'A'\nkey = 'a.pem'\n"
    )
    assert (settings.arc.domain, settings.arc.selector, settings.arc.key) == ("example.org", "a", "/etc/waypost/a.pem")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dmarc = 'reject'\ntemperror = 'defer'", "[authenticity] dmarc, temperror: no effect while evaluate"),
        ("evaluate = 'mx'\ndmarc = 'reject'", '[authenticity] dmarc = "reject" is evaded by'),
        ("evaluate = 'mx'\ndmarc = 'reject'\nbad_from = 'reject'", ""),
        ("evaluate = 'mx'\ndmarc = 'quarantine'", ""),
        ("", ""),
    ],
)
def test_settings_that_do_less_than_they_say_are_named(text: str, said: str) -> None:
    warnings = list(authenticity_warnings(settings_of("[authenticity]\n" + text).authenticity))
    assert [each[: len(said)] for each in warnings] == [said] * bool(said)


def test_the_examples_of_the_page_can_be_read() -> None:
    page = (Path(__file__).parents[2] / "docs/authenticity.md").read_text()
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert examples
    assert any(settings_of(each).authenticity.evaluate == "mx" for each in examples)


def test_a_receiver_loads_nothing_of_the_check_while_it_is_off() -> None:
    code = (
        "import sys; from mailcore.processes import ROLES; ROLES['receiver'].load();"
        "print([each for each in sys.modules if each.startswith('mailcore.authenticity.') or each == 'mailcore.dkim.key'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['mailcore.authenticity.sender_check']"
