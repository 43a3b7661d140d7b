"""Files of routes: the same patterns and routes as in the configuration file, first or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.load import ConfigError, load_text
from mailcore.config.route_files import read_tables, route_faults, with_route_files
from mailcore.config.settings import Settings
from mailcore.rewriting.map_text import MapFault
from mailcore.routing.resolve import Resolved

TABLES = """
[transports.store]
protocol = "lmtp"
[routes]
"*" = "relay:[192.0.2.1]"
"example.org" = "smtp:toml.example"
"Kim@example.org" = "smtp:kim.toml.example"
[sender_routes]
"example.com" = "relay:toml.example"
[login_routes]
"newsletter" = "bulk:toml.example"
"""


def loaded(directory: Path, table: str = "routes", *names: str) -> Settings:
    listed = ", ".join(f'"{name}"' for name in names or ("map",))
    return load_text(directory / "waypost.toml", f"[route_maps]\n{table} = [{listed}]\n{TABLES}")


def faults(directory: Path, text: str, table: str = "routes") -> list[str]:
    (directory / "map").write_text(text)
    return [fault.removeprefix(f"{directory}/map") for fault in route_faults(loaded(directory, table))]


def test_a_line_is_a_pattern_and_a_route(tmp_path: Path) -> None:
    (tmp_path / "map").write_text(
        "# customers\n\nEXAMPLE.net\t relay:[Mail.example.net]:587\n.example.net  bulk\n"
        "Old@Example.net  error:5.1.6 This person\n  has a new address # and no comment\n* discard\n"
        "store.example store:unix:/run/lmtp\nreview.example hold:relay\n"
    )
    tables = read_tables(loaded(tmp_path))
    assert tables.routes == {
        "example.net": "relay:[mail.example.net]:587",
        ".example.net": "bulk",
        "old@example.net": "error:5.1.6 This person has a new address # and no comment",
        "*": "discard",
        "store.example": "store:unix:/run/lmtp",
        "review.example": "hold:relay",
        "example.org": "smtp:toml.example",
        "kim@example.org": "smtp:kim.toml.example",
    }
    places = {pattern: str(place).removeprefix(f"{tmp_path}/") for pattern, place in tables.places["routes"].items()}
    assert places["old@example.net"] == "map:5"
    assert places["*"] == "map:7"
    assert "example.org" not in places


@pytest.mark.parametrize(
    ("table", "pattern", "same"),
    [
        ("routes", "example.org", "EXAMPLE.org"),
        ("routes", "kim@example.org", "KIM@example.org"),
        ("sender_routes", "example.com", "example.com"),
        ("login_routes", "newsletter", "newsletter"),
    ],
)
def test_the_first_file_goes_first_and_the_configuration_file_last(
    tmp_path: Path, table: str, pattern: str, same: str
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"{same} smtp:{name}.example\n{name}.example smtp:{name}.example\n")
    settings = loaded(tmp_path, table, "one", "two")
    found = getattr(read_tables(settings), table)
    assert found[pattern] == "smtp:one.example"
    assert found["two.example"] == "smtp:two.example"
    assert getattr(with_route_files(settings), table)[pattern] == "smtp:one.example"
    assert read_tables(settings).places[table][pattern] == (f"{tmp_path}/one", 1)


def test_a_more_specific_pattern_of_the_configuration_file_goes_before_a_file(tmp_path: Path) -> None:
    (tmp_path / "map").write_text("example.org smtp:map.example\n")
    settings = loaded(tmp_path)
    routing = read_tables(settings).routing(settings)
    kim, other = (routing.resolve(f"{name}@example.org") for name in ("kim", "other"))
    assert isinstance(kim, Resolved)
    assert isinstance(other, Resolved)
    assert (kim.destination, other.destination) == ("smtp:kim.toml.example", "smtp:map.example")


@pytest.mark.parametrize(
    ("table", "line", "fault"),
    [
        ("routes", "example.net", "'example.net' must have a route behind it"),
        ("routes", "exa_mple!.net smtp", "'exa_mple!.net' must be a pattern"),
        ("routes", "example.net rely:[a.example]", "'example.net' must name a transport that is defined (got "),
        ("routes", "example.net smtp:192.0.2.1", "must be a route: 'smtp:192.0.2.1': write an address in brackets"),
        ("routes", "example.net smtp:unix:/run/x", "'example.net' must not be a Unix socket"),
        ("routes", "example.net hold:rely", "'example.net' must name a transport"),
        ("routes", "<> smtp", "'<>' must be a pattern"),
        ("sender_routes", "* smtp", "'*' must be a pattern"),
        ("sender_routes", "first.example bulk", "'first.example' must not be there twice; it is also in line 1"),
        ("login_routes", f"{'x' * 256} smtp", "must be the name of a user"),
    ],
)  # fmt: skip
def test_a_fault_names_file_and_line(tmp_path: Path, table: str, line: str, fault: str) -> None:
    (told,) = faults(tmp_path, f"first.example smtp\n\n{line}\nlast.example smtp\n", table)
    assert told.startswith(":3: ")
    assert fault in told


def test_all_faults_of_all_files_are_named_and_none_is_used(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("x smtp\n" + "bad\n" * 30)
    settings = loaded(tmp_path, "routes", "one", "two")
    told = route_faults(settings)
    assert len(told) == 22
    assert told[20] == f"{tmp_path}/one: and 10 more lines"
    assert told[21] == f"{tmp_path}/two: cannot be read: No such file or directory"
    with pytest.raises(MapFault):
        read_tables(settings)


def test_a_type_of_postfix_is_not_a_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="write '/etc/postfix/transport', the source that postmap reads"):
        loaded(tmp_path, "routes", "hash:/etc/postfix/transport")
    with pytest.raises(ConfigError, match="must be the path of a file with a pattern and a route"):
        loaded(tmp_path, "routes", "regexp:/etc/postfix/transport")
