"""Files of aliases and canonical addresses: what they say, and what is wrong in them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mailcore.rewriting.address_map import AddressMap, read_map
from mailcore.rewriting.budget import PatternTooSlow
from mailcore.rewriting.map_text import MapFault


def made(directory: Path, text: str, *, regexp: bool = False, delimiter: str = "") -> AddressMap:
    path = directory / "map"
    path.write_text(text)
    return read_map(f"{'regexp:' if regexp else ''}{path}", delimiter)


@pytest.mark.parametrize(
    ("address", "results"),
    [
        ("kim@example.org", ("kim@one.example",)),
        ("KIM@Example.ORG", ("kim@one.example",)),
        ("all@example.org", ("a@one.example", "b@two.example", "c@three.example")),
        ("other@all.example", ("any@one.example",)),
        ("robin@moved.example", ("robin@new.example",)),
        ("kim@example.org.", None),
        ("else@example.org", None),
        ("kim@sub.example.org", None),
    ],
)
def test_an_exact_address_goes_before_its_domain(tmp_path: Path, address: str, results: tuple[str, ...] | None) -> None:
    text = """# a comment
kim@example.org      kim@one.example
All@example.org      a@one.example, b@two.example
    # a comment between
    c@three.example
@all.example         any@one.example
@moved.example       @new.example
"""
    found = made(tmp_path, text).find(address.removesuffix(".") if results else address)
    assert found == results or (address.endswith(".") and found == ("kim@one.example",))


def test_an_extension_is_looked_up_with_and_without_and_goes_along(tmp_path: Path) -> None:
    text = "kim@x.example kim@y.example\nkim+own@x.example own@y.example\n"
    extended = made(tmp_path, text, delimiter="+-")
    assert extended.find("kim+own@x.example") == ("own@y.example",)
    assert extended.find("kim+list@x.example") == ("kim+list@y.example",)
    assert extended.find("kim-list@x.example") == ("kim-list@y.example",)
    assert extended.find("+kim@x.example") is None
    assert made(tmp_path, text).find("kim+list@x.example") is None


def test_a_pattern_fills_its_groups_and_the_first_that_is_found_counts(tmp_path: Path) -> None:
    text = "/^list-(.+)@x[.]example$/  ${1}@lists.example, $1@archive.example\n/@x\\.example$/ rest@x.example\n"
    rules = made(tmp_path, text, regexp=True)
    assert rules.find("LIST-a@X.example") == ("a@lists.example", "a@archive.example")
    assert rules.find("b@x.example") == ("rest@x.example",)
    assert rules.find("b@y.example") is None


def test_a_pattern_without_end_is_stopped(tmp_path: Path) -> None:
    rules = made(tmp_path, "/^(a|aa)+$/ x@x.example\n/^((a+)+)+b$/ x@x.example\n", regexp=True)
    began = time.monotonic()
    with pytest.raises(PatternTooSlow, match=r"map:[12]: the pattern takes too long"):
        rules.find("a" * 200 + "@example.org")
    assert time.monotonic() - began < 5


def test_what_a_pattern_makes_must_be_an_address(tmp_path: Path) -> None:
    rules = made(tmp_path, "/^(.*)@x[.]example$/ $1@$1\n", regexp=True)
    with pytest.raises(PatternTooSlow, match="not an address"):
        rules.find('"a b"@x.example')


@pytest.mark.parametrize(
    ("text", "regexp", "faults"),
    [
        ("a@x.example b@x.example\nalone@x.example\n", False, ["map:2: 'alone@x.example' has no address behind it"]),
        ("kim other@x.example\n", False, ["map:1: 'kim' is neither an address nor @domain"]),
        ("a@x.example b\n@ c@x.example\n", False, ["map:1: 'b' is neither", "map:2: '@' is neither"]),
        ("a@x.example b@x.example\n\nA@X.example c@x.example\n", False, ["map:3: 'a@x.example' is there twice"]),
        ("/(/ b@x.example\n", True, ["map:1: not a regular expression"]),
        ("/(a)/ $2@x.example\n", True, ["map:1: $2: the pattern has 1 group"]),
        ("a@x.example b@x.example\n", True, ["map:1: must be /PATTERN/ and an address"]),
        ("/a/ b\n", True, ["map:1: 'b' is neither"]),
    ],
)
def test_a_fault_names_file_and_line(tmp_path: Path, text: str, regexp: bool, faults: list[str]) -> None:
    with pytest.raises(MapFault) as fault:
        made(tmp_path, text, regexp=regexp)
    lines = str(fault.value).splitlines()
    assert len(lines) == len(faults)
    for line, expected in zip(lines, faults, strict=True):
        assert line.startswith(f"{tmp_path}/{expected}")


def test_a_file_that_is_missing_or_not_text_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(MapFault, match="cannot be read: No such file"):
        read_map(str(tmp_path / "missing"))
    (tmp_path / "map").write_bytes(b"a@x.example b@x.example\n\xff\n")
    with pytest.raises(MapFault, match="map:2: the line is not UTF-8"):
        read_map(str(tmp_path / "map"))


def test_a_byte_order_mark_does_not_count(tmp_path: Path) -> None:
    assert made(tmp_path, "\ufeffteam@example.org kim@example.org\n").find("team@example.org") == ("kim@example.org",)


def test_a_star_for_the_addresses_of_a_domain_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(MapFault, match=r"map:1: '\*@example.org' must be '@example.org'"):
        made(tmp_path, "*@example.org b@example.org\n")


def test_a_domain_of_aliases_as_postfix_names_it_maps_no_address(tmp_path: Path) -> None:
    (tmp_path / "map").write_text("shop.example   anything\nsales@shop.example kim@example.org\n")
    found = read_map(str(tmp_path / "map"))
    assert len(found) == 1
    assert found.find("other@shop.example") is None
    (tmp_path / "map").write_text("shop.example kim@example.org\n")
    with pytest.raises(MapFault, match=r"map:1: 'shop\.example' is neither an address nor @domain"):
        read_map(str(tmp_path / "map"))
