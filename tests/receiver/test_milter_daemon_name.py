"""A listener may have a name of its own for milters, by which OpenDKIM knows what to sign."""

from __future__ import annotations

import pytest

from mailcore.bounds import BadValue
from mailcore.config.listeners import Listener
from mailcore.config.milters import macro_value
from tests.milter.scripted import milter
from tests.receiver.server_in_process import serving


async def test_milters_get_the_name_of_the_listener() -> None:
    async with milter() as filter_:
        rule = Listener(milters=(filter_.address,), milter_macro_daemon_name="ORIGINATING")
        async with serving(rule=rule) as server:
            client = await server.client()
            await client.hello()
            assert filter_.macros["C"]["{daemon_name}"] == "ORIGINATING"
            assert filter_.macros["C"]["j"] == "mx.example.net"


@pytest.mark.parametrize("given", ["a\nb", "a\0", "\u00e9", "x" * 256])
def test_a_name_that_is_no_value_of_a_macro_is_refused(given: str) -> None:
    with pytest.raises(BadValue):
        macro_value(given)
