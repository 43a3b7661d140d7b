"""A route is read as it is written, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from mailcore.routing.route import Route, RouteError, domain_name, parse_route


@pytest.mark.parametrize(
    ("text", "route"),
    [
        ("smtp", Route("smtp")),
        ("relay:example.org", Route("relay", "example.org")),
        ("relay:Example.ORG.", Route("relay", "example.org")),
        ("smtp:example.org:2525", Route("smtp", "example.org", 2525)),
        ("smtp:[mx.example.org]", Route("smtp", "mx.example.org", mx=False)),
        ("smtp:[127.0.0.1]:2526", Route("smtp", "127.0.0.1", 2526, mx=False)),
        ("smtp:[::1]:2526", Route("smtp", "::1", 2526, mx=False)),
        ("smtp:[IPv6:2001:DB8:0::1]", Route("smtp", "2001:db8::1", mx=False)),
        ("lmtp:unix:/run/dovecot/lmtp", Route("lmtp", "/run/dovecot/lmtp", mx=False)),
        ("discard", Route("discard")),
        ("discard:spam trap", Route("discard", text="spam trap")),
        ("error:5.7.1 No: go away", Route("error", text="5.7.1 No: go away")),
        ("retry:later", Route("retry", text="later")),
        ("hold", Route("hold")),
        ("hold:smtp:[192.0.2.1]:587", Route("hold", text="smtp:[192.0.2.1]:587")),
        ("my-bulk_2:_mta.example", Route("my-bulk_2", "_mta.example")),
    ],
)
def test_a_route_is_read_and_written_back(text: str, route: Route) -> None:
    assert parse_route(text) == route
    assert parse_route(str(route)) == route


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "transport's name"),
        (":example.org", "transport's name"),
        ("Smtp:example.org", "transport's name"),
        ("smtp:", "not a domain name"),
        ("smtp::25", "not a domain name"),
        ("smtp:example.org:", "port"),
        ("smtp:example.org:0", "port"),
        ("smtp:example.org:65536", "port"),
        ("smtp:example.org:٢٥", "port"),
        ("smtp:example.org:25:25", "IPv6"),
        ("smtp:2001:db8::1", "IPv6"),
        ("smtp:127.0.0.1", r"in brackets: \[127.0.0.1\]"),
        ("smtp:[127.0.0.1", "not closed"),
        ("smtp:[127.0.0.1]25", "not closed"),
        ("smtp:[127.0.0.1]:", "port"),
        ("smtp:[127.0.0.256]", "not a valid address"),
        ("smtp:[2001:zz::]", "not a valid address"),
        ("lmtp:unix:", "begins with /"),
        ("lmtp:unix:run/lmtp", "begins with /"),
        ("lmtp:unix:/run/lm tp", "begins with /"),
        ("lmtp:unix:/run//lmtp", "begins with /"),
        ("lmtp:unix:/run/lmtp:24", "begins with /"),
        ("lmtp:unix:/" + 107 * "x", "107 bytes"),
        ("error:4.7.1 no", "begins with 5"),
        ("retry:5.7.1 no", "begins with 4"),
        ("error:a\r\nb", "control character"),
        ("discard:" + 201 * "x", "200 characters"),
        ("hold:discard", "cannot go to discard"),
        ("hold:hold:smtp", "cannot go to hold"),
        ("hold:smtp:[", "not closed"),
        ("hold:look at it", "does not begin with a transport"),
        ("smtp:[]", "not a domain name"),
        ("smtp:exa mple.org", "not a domain name"),
        ("smtp:example..org", "not a domain name"),
        ("smtp:-example.org", "not a domain name"),
        ("smtp:bücher.example", "xn--"),
        ("smtp:example.org\r\nRCPT", "not a domain name"),
    ],
)
def test_what_is_no_route_says_why_and_what_is_allowed(text: str, what: str) -> None:
    with pytest.raises(RouteError, match=what) as error:
        parse_route(text)
    assert str(error.value).count("allowed: ") == str(error.value).count("transport:[host]:port") == 1


def test_a_domain_name_is_bounded() -> None:
    assert domain_name("a" * 63 + ".example") == "a" * 63 + ".example"
    for long in ("a" * 64 + ".example", ".".join(["abcdefgh"] * 29)):
        with pytest.raises(RouteError):
            domain_name(long)
