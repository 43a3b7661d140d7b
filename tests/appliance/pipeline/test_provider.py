"""Who owns a host: the registrable domain of its name, as near as a list of second levels tells."""

from __future__ import annotations

import pytest

from appliance.pipeline.provider import provider_of

OWNERS = {
    "mx1.mail.example.net[192.0.2.1]:25": "example.net",
    "MX.Example.ORG.[192.0.2.1]:25": "example.org",
    "mx.example.co.uk[192.0.2.1]:25": "example.co.uk",
    "example.com[192.0.2.1]:25": "example.com",
    "mx.com.example[2001:db8::1]:25": "com.example",
    "[192.0.2.7]:2525": "[192.0.2.7]",
    "[2001:db8::1]:25": "[2001:db8::1]",
    "127.0.0.1[127.0.0.1]:25801": "[127.0.0.1]",
    "192.0.2.7.[192.0.2.7]:25": "[192.0.2.7]",
    "2001:DB8::1[2001:DB8::1]:25": "[2001:db8::1]",
    "::ffff:192.0.2.7[::ffff:192.0.2.7]:25": "[::ffff:192.0.2.7]",
    "[192.0.2.7][192.0.2.7]:25": "[192.0.2.7]",
    "[IPv6:2001:db8::1][2001:db8::1]:25": "[2001:db8::1]",
    "1.example[192.0.2.1]:25": "1.example",
    "localhost[127.0.0.1]:25": "localhost",
    "none": "",
    "": "",
}


@pytest.mark.parametrize("relay", [*OWNERS, None])
def test_who_owns_a_host(relay: str | None) -> None:
    assert provider_of(relay) == OWNERS.get(relay or "", "")
