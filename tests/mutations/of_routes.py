"""Ways to break what keeps routes in use."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
    Mutation(
        "a file of routes is used without its lines that have a fault",
        "mailcore/config/route_files.py",
        '        raise MapFault("\\n".join(dict.fromkeys(faults)))\n',
        "        pass\n",
        "tests/config/test_route_files.py -k all_faults",
    ),
    Mutation(
        "without usable files of routes mail goes by the others",
        "mailcore/config/live_routes.py",
        "        self.routing = missing_routing(settings) if paths else routing_of(settings)\n",
        "        self.routing = routing_of(settings)\n",
        "tests/config/test_live_routes.py -k without_any_usable_file",
    ),
    Mutation(
        "mail in the active set goes by the routes of today",
        "mailcore/manager/flow.py",
        "        destination = active.destinations[recipients[0].number]\n",
        "        destination = self.context.routing.resolve(recipients[0].address).destination  # type: ignore[union-attr]\n",
        "tests/manager/test_flow.py -k keeps_its_route",
    ),
    Mutation(
        "without usable files of fallbacks the transport's are used",
        "mailcore/config/routing_of.py",
        "    fallbacks = _fallbacks(settings, {} if settings.route_maps.fallback_relay else None)\n",
        "    fallbacks = _fallbacks(settings, None)\n",
        "tests/config/test_live_routes.py -k usable_file_of_fallbacks",
    ),
    Mutation(
        "mail is returned because its fallback does not exist",
        "mailcore/deliverer/client.py",
        "                why = fault_of(answer[0])\n",
        "",
        "tests/deliverer/test_fallback.py -k takes_no_mail_returns",
    ),
    Mutation(
        "a fallback that is ourselves gets the mail",
        "mailcore/deliverer/client.py",
        "            why = await self._loop_of(hop)\n",
        '            why = ""\n',
        "tests/deliverer/test_fallback.py -k ourselves",
    ),
    Mutation(
        "a fallback that is ourselves in another form gets the mail",
        "mailcore/routing/own_addresses.py",
        "    return address if mapped is None else mapped\n",
        "    return address\n",
        "tests/routing/test_own_addresses.py -k each_form",
    ),
]
