"""Files of fallback next hops: a transport or a destination, and next hops; what a line cannot be, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mailcore.config.load import ConfigError, load_text
from mailcore.config.policies_without_mail import policies_without_mail
from mailcore.config.route_files import read_tables, route_faults, with_route_files
from mailcore.config.settings import Settings
from mailcore.rewriting.map_text import MapFault

TEXT = """
[receiver]
listen = ["192.0.2.20:25", "192.0.2.20:587"]
[transports.smtp]
fallback_relay = ["toml.example"]
[transports.relay]
fallback_relay = ["[relay.toml.example]"]
[transports.store]
protocol = "lmtp"
"""


def loaded(directory: Path, *names: str, more: str = "") -> Settings:
    listed = ", ".join(f'"{name}"' for name in names or ("map",))
    return load_text(directory / "waypost.toml", f"[route_maps]\nfallback_relay = [{listed}]\n{TEXT}{more}")


def test_a_line_is_a_transport_or_a_destination_and_next_hops(tmp_path: Path) -> None:
    (tmp_path / "map").write_text(
        "# of all\nsmtp\t[Backup.example.org]:587, OTHER.example.net.  [192.0.2.7]\n"
        "smtp:Customer.example  [2001:DB8::1]:2525,\n  last.example\n"
        "smtp:customer.example:587 none\nsmtp:.internal.example none\nsmtp:[192.0.2.1] a.example\n"
        "store:keep.example [keep2.example]\nstore:unix:/run/lmtp [keep3.example]\n"
    )
    tables = read_tables(loaded(tmp_path))
    assert tables.fallbacks == {
        "smtp": ("[backup.example.org]:587", "other.example.net", "[192.0.2.7]"),
        "smtp:customer.example": ("[2001:db8::1]:2525", "last.example"),
        "smtp:customer.example:587": (),
        "smtp:.internal.example": (),
        "smtp:[192.0.2.1]": ("a.example",),
        "store:[keep.example]": ("[keep2.example]",),
        "store:unix:/run/lmtp": ("[keep3.example]",),
        "relay": ("[relay.toml.example]",),
    }
    places = {scope: place.line for scope, place in tables.places["fallback_relay"].items()}
    assert places["smtp:customer.example"] == 3
    assert "relay" not in places
    routing = tables.routing(loaded(tmp_path))
    assert [hop.host for hop in routing.fallbacks.of("smtp:any.example")][:1] == ["backup.example.org"]
    assert routing.fallbacks.of("smtp:a.internal.example") == ()


def test_the_first_file_goes_first_and_the_transport_last(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("smtp one.example\n")
    (tmp_path / "two").write_text("smtp two.example\nsmtp:a.example two.example\n")
    tables = read_tables(loaded(tmp_path, "one", "two"))
    assert tables.fallbacks == {
        "smtp": ("one.example",),
        "smtp:a.example": ("two.example",),
        "relay": ("[relay.toml.example]",),
    }
    (tmp_path / "one").write_text("# nothing\n")
    (tmp_path / "two").write_text("")
    assert read_tables(loaded(tmp_path, "one", "two")).fallbacks["smtp"] == ("toml.example",)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("smtp", "'smtp' must have next hops behind it, or \"none\" alone"),
        ("smtp ,", "'smtp' must have next hops behind it"),
        ("smtp none, a.example", "'smtp' must have next hops behind it, or \"none\" alone"),
        ("smpt a.example", "'smpt' must be a transport, or a transport and a destination: \"smtp\", "),
        ("smpt a.example", "did you mean 'smtp'? transports: smtp, relay"),
        ("example.org a.example", "'example.org' must be a transport, or a transport and a destination"),
        ("* a.example", "'*' must be a transport"),
        ("error a.example", "'error' must be a transport"),
        ("smtp: a.example", "'smtp:' must be a transport, or a transport and a destination"),
        ("smtp:* a.example", "'smtp:*' must be a transport, or"),
        ("smtp:a@b.example a.example", "'smtp:a@b.example' must be a transport, or"),
        ("smtp:192.0.2.1 a.example", "'smtp:192.0.2.1' must be a transport, or"),
        ("store:.example.org a.example", "'store:.example.org' must be a transport, or"),
        ("smtp 192.0.2.1", "'smtp' has a fallback that must be a next hop such as \"backup.example.org\""),
        ("smtp a.example b.example:0", "(got 'b.example:0')"),
        ("smtp unix:/run/lmtp", "'smtp' has a fallback that must be a next hop"),
        ("smtp relay:[a.example]", "'smtp' has a fallback that must be a next hop"),
        ("smtp a.example, A.example.", "'smtp' must not have a value twice (got 'a.example' twice)"),
        ("smtp " + " ".join(f"h{n}.example" for n in range(21)), "'smtp' must have at most 20 next hops (got 21)"),
        ("smtp:first.example b.example", "'smtp:first.example' must not be there twice; it is also in line 1"),
        ("smtp:a.example b.example a.example:25", "must not have itself as its fallback (got 'a.example:25')"),
        ("store:a.example a.example", "must not have itself as its fallback"),
        (
            "smtp [192.0.2.20]",
            "must not have this Waypost itself as its fallback: '[192.0.2.20]' leads to an address that it listens on, port 25",
        ),
        ("smtp:a.example [192.0.2.20]:587", "'[192.0.2.20]:587' leads to an address that it listens on, port 587"),
    ],
)
def test_a_fault_names_file_and_line(tmp_path: Path, line: str, fault: str) -> None:
    (tmp_path / "map").write_text(f"smtp:first.example a.example\n\n{line}\nrelay b.example\n")
    settings = loaded(tmp_path)
    (told,) = route_faults(settings)
    assert told.startswith(f"{tmp_path}/map:3: ")
    assert fault in told
    with pytest.raises(MapFault):
        read_tables(settings)


@pytest.mark.parametrize(
    "line", ["smtp:a.example a.example:587", "smtp:[a.example] a.example", "smtp:.a.example a.example", "smtp [192.0.2.20]:26"]
)  # fmt: skip
def test_what_only_looks_like_a_loop_is_allowed(tmp_path: Path, line: str) -> None:
    (tmp_path / "map").write_text(line)
    assert route_faults(loaded(tmp_path)) == []


def test_a_listener_on_all_addresses_is_this_host(tmp_path: Path) -> None:
    (tmp_path / "map").write_text("smtp [127.0.0.1]:2525\n")
    text = '[receiver]\nlisten = ["0.0.0.0:2525"]\n[route_maps]\nfallback_relay = ["map"]\n'
    (told,) = route_faults(load_text(tmp_path / "waypost.toml", text))
    assert "'[127.0.0.1]:2525' leads to an address that it listens on, port 2525" in told


@pytest.mark.parametrize("form", ["0.0.0.0", "::", "::ffff:127.0.0.1", "::ffff:7f00:1", "IPv6:::ffff:127.0.0.1"])
def test_an_address_that_we_listen_on_is_known_in_each_form(tmp_path: Path, form: str) -> None:
    """law: fallback-returns-nothing."""
    (tmp_path / "map").write_text(f"smtp [{form}]:2525\n")
    text = '[receiver]\nlisten = ["127.0.0.1:2525"]\n[route_maps]\nfallback_relay = ["map"]\n'
    (told,) = route_faults(load_text(tmp_path / "waypost.toml", text))
    assert "must not have this Waypost itself as its fallback: '[" in told


@pytest.mark.parametrize("form", ["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "IPv6:::ffff:7f00:1"])
@pytest.mark.parametrize("listen", ['[receiver]\nlisten = ["127.0.0.1:24"]', '[[listener]]\naddress = "127.0.0.1:24"'])
def test_a_transport_has_no_address_that_we_listen_on(tmp_path: Path, form: str, listen: str) -> None:
    """law: fallback-returns-nothing."""
    text = f'{listen}\n[transports.store]\nprotocol = "lmtp"\nfallback_relay = ["[{form}]"]\n'
    with pytest.raises(ConfigError, match=r":5: .*fallback_relay must not have this Waypost itself: '\[.*leads to"):
        load_text(tmp_path / "waypost.toml", text)
    load_text(tmp_path / "waypost.toml", text.replace('"lmtp"', '"smtp"'))


def test_a_fault_of_a_fallback_keeps_the_routes_too(tmp_path: Path) -> None:
    (tmp_path / "map").write_text("smpt a.example\n")
    (tmp_path / "routes").write_text("example.org nowhere\n")
    text = '[route_maps]\nfallback_relay = ["map"]\nroutes = ["routes"]\n'
    told = route_faults(load_text(tmp_path / "waypost.toml", text))
    assert [fault.partition(": ")[0] for fault in told] == [f"{tmp_path}/routes:1", f"{tmp_path}/map:1"]


def test_a_policy_for_a_fallback_of_a_file_has_mail(tmp_path: Path) -> None:
    more = '[tls_policy."backup.example"]\nlevel = "encrypt"\n[routes]\n"*" = "smtp:hub.example"\n'
    settings = loaded(tmp_path, more=more)
    assert [pattern for pattern, _ in policies_without_mail(settings)] == ["backup.example"]
    (tmp_path / "map").write_text("smtp:a.example backup.example\n")
    assert list(policies_without_mail(with_route_files(settings))) == []


def test_a_type_of_postfix_is_not_a_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="write '/etc/postfix/fallback', the source that postmap reads"):
        loaded(tmp_path, "hash:/etc/postfix/fallback")
