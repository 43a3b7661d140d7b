"""The reading of main.cf beside postconf's, and what postconf would not survive."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mailcore.import_postfix.defaults import DEFAULTS, of_host
from mailcore.import_postfix.main_cf import MainCf, split_list

# Postfix shows no parameters of our own making, so each form stands in one that takes any text.
TEXT = r"""
  goes on with nothing
# a comment
myhostname = mail.example.org
mydomain=example.org
 # amidst nothing
mail_name = one
  two,
# a comment amidst

  three
smtpd_banner = $myhostname ${mydomain} $(mydomain) $$x
relayhost = ${nothing?x}${mydomain?yes}
myorigin = ${nothing:no} ${mydomain:no}
mynetworks = ${mydomain?{yes}:{no}} ${nothing?{yes}:{no}}
relay_domains = ${{$mydomain} == {example.org} ? {same} : {other}}
smtp_helo_name = ${{5} < {10} ? {less} : {more}}
notify_classes = ${nothing?{yes}} | ${mydomain?{ yes }} |
double_bounce_sender = ${ mydomain }
error_notice_recipient = ${mydomain ? {yes} : {no}}
bounce_notice_recipient = x$mydomain.y ${mydomain}z
delay_notice_recipient = ${{abc} != {abd} ? {$mydomain}:{no}}
canonical_maps =
virtual_alias_maps = ${canonical_maps?yes}
transport_maps = ${mydomain?a b c}
mail_name = again $transport_maps
relocated_maps = ${{3.10} >level {3.9} ? {later} : {earlier}} ${{3.10} > {3.9} ? {later} : {earlier}}
alias_maps = ${{$compatibility_level} <level {2} ? {old} : {new}}
inet_interfaces = 127.0.0.1
"""


def postconf(directory: Path, *arguments: str) -> dict[str, str]:
    if shutil.which("postconf") is None:
        pytest.skip("postfix is not installed: apt-get install postfix")
    done = subprocess.run(
        ["postconf", "-c", str(directory), *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    pairs = (line.partition(" =") for line in done.stdout.splitlines())
    return {name: value.strip() for name, _, value in pairs}


def test_each_form_of_a_name_is_read_as_postconf_reads_it(tmp_path: Path) -> None:
    (tmp_path / "main.cf").write_text(TEXT)
    (tmp_path / "master.cf").write_text("")
    read = MainCf(TEXT, DEFAULTS)
    real = postconf(tmp_path, "-x", *read.given)
    assert len(real) == 20
    assert {name: read.value(name).split() for name in real} == {name: value.split() for name, value in real.items()}
    assert read.faults == []


def test_what_postfix_was_given_here_is_what_it_says_it_was_given() -> None:
    path = Path("/etc/postfix/main.cf")
    if not path.exists():
        pytest.skip("no main.cf on this machine")
    read = MainCf(path.read_text(), DEFAULTS)
    real = postconf(path.parent, "-n")
    real.pop("config_directory", None)  # that was given to postconf
    assert {name: read.raw(name).split() for name in real} == {name: value.split() for name, value in real.items()}


def test_the_defaults_are_those_of_the_installed_postfix(tmp_path: Path) -> None:
    (tmp_path / "main.cf").write_text("")
    (tmp_path / "master.cf").write_text("")
    real = postconf(tmp_path, "-d", *DEFAULTS)
    assert {name: value.split() for name, value in DEFAULTS.items()} == {
        name: real[name].split() for name in DEFAULTS if name in real
    }
    assert set(real) == set(DEFAULTS)


@pytest.mark.parametrize(
    ("host", "given", "name", "domain"),
    [
        ("mail.example.org", {}, "mail.example.org", "example.org"),
        ("mail", {}, "mail.localdomain", "localdomain"),
        ("mail", {"mydomain": "example.net"}, "mail.example.net", "example.net"),
        ("mail", {"myhostname": "a.b.example"}, "mail.localdomain", "b.example"),
    ],
)
def test_names_of_the_host_are_made_of_each_other(host: str, given: dict[str, str], name: str, domain: str) -> None:
    assert of_host(host, given) == {"myhostname": name, "mydomain": domain}


@pytest.mark.parametrize(
    "text",
    [
        "a = $b\nb = $a\n",
        "a = $a$a\n",
        "\n".join(["a0 = xxxxxxxxxx", *(f"a{n} = $a{n - 1}$a{n - 1}" for n in range(1, 60)), "a = $a40"]),
        "a = " + "${x?" * 3000,
    ],
    ids=["circle", "itself", "doubling", "deep"],
)
def test_a_value_without_an_end_is_told_and_ends(text: str) -> None:
    read = MainCf(text)
    assert read.value("a") == ""
    assert "x?" in text or [fault.partition(": ")[2] for fault in read.faults] == [
        "a refers to itself or is too long; treated as empty"
    ]


def test_what_is_no_setting_is_told_with_its_line() -> None:
    read = MainCf("myhostname = a.example\nnonsense\n")
    assert read.faults == ["main.cf:2: is not of the form name = value"]
    assert read.lines == {"myhostname": 1}


def test_a_list_is_split_at_commas_and_white_space_but_not_in_braces() -> None:
    assert split_list("a, b\tc,{ d e }, hash:/x") == ["a", "b", "c", "{ d e }", "hash:/x"]
