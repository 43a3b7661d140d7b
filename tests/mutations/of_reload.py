"""Ways to break changes of the configuration while Waypost runs."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

RELOAD = "tests/end_to_end/test_reload.py"
EFFECTS = "tests/end_to_end/test_effects.py"
SUPERVISOR = "mailcore/supervisor/supervisor.py"

MUTATIONS = [
    Mutation(
        "a change that needs a restart is reloaded",
        "mailcore/supervisor/reloading.py",
        "    if refused:\n",
        "    if refused and not keys:\n",
        f"{RELOAD} -k fault",
    ),
    Mutation(
        "a reload takes an address that this host does not have",
        "mailcore/supervisor/preparation.py",
        "            if why.errno != errno.EADDRINUSE and is_start:\n",
        "            if why.errno != errno.EADDRINUSE:\n",
        "tests/supervisor/test_supervisor.py -k no_receiver_could",
    ),
    Mutation(
        "a process that reads a setting is not restarted",
        "mailcore/supervisor/settings_change.py",
        '    "bounce": ("manager",),\n',
        '    "bounce": (),\n',
        "tests/supervisor/test_settings_change.py -k table",
    ),
    Mutation(
        "a reload closes the receivers' sockets",
        SUPERVISOR,
        "        child.process, child.due, child.backoff_s = None, time.monotonic(), BACKOFF_S_MIN\n",
        "        child.process, child.due, child.backoff_s = None, time.monotonic(), BACKOFF_S_MIN\n"
        "        self._close_sockets(child.number)\n",
        f"{RELOAD} -k what_has_begun",
    ),
    Mutation(
        "a manager that ends does not wait for verdicts",
        "mailcore/manager/flow.py",
        "        return any(link.busy for link in self.deliverers) or bool(self._unsynced)\n",
        "        return False\n",
        f"{RELOAD} -k what_has_begun",
    ),
    Mutation(
        "a receiver that ends takes more transactions",
        "mailcore/receiver/session.py",
        "        if self.context.is_ending:\n",
        "        if False:\n",
        f"{RELOAD} -k what_has_begun",
    ),
    Mutation(
        "deliverers end before the manager",
        SUPERVISOR,
        "                    reload.waiting.add(child.name)  #",
        "                    child.process.kill()  #",
        f"{RELOAD} -k what_has_begun",
    ),
    Mutation(
        "a change is made for any revision",
        "mailcore/control/managing.py",
        "        if revision != now if must_match else",
        "        if False if must_match else",
        "tests/end_to_end/test_settings.py -k by_hand",
    ),
    Mutation(
        "a setting that names a file is managed",
        "mailcore/config/managed.py",
        "        if why:\n            yield key, why\n",
        "        if why and len(key) == 1:\n            yield key, why\n",
        "tests/end_to_end/test_settings.py -k refused",
    ),
    Mutation(
        "a row is removed with a setting that is not managed",
        "mailcore/config/managed.py",
        "    for each in [key, *(each for each in keys_of(below) if is_below(_names_of(each), key))]:\n",
        "    for each in [key]:\n",
        "tests/config/test_removed_settings.py -k alone",
    ),
    Mutation(
        "a message that a key would sign is not counted",
        "mailcore/effects/signatures.py",
        "            if was != then:\n",
        "            if was and then and was != then:\n",
        "tests/end_to_end/test_effects.py -k key_would_sign",
    ),
    Mutation(
        "queued mail that would bounce is not counted",
        "mailcore/effects/queued.py",
        "                if old == new:\n",
        "                if old == new or after.bounces:\n",
        f"{EFFECTS} -k elsewhere",
    ),
    Mutation(
        "a host that is down is taken for an effect",
        "mailcore/effects/hops.py",
        'if why and hop[0] in old.transports else ""',
        'if False else ""',
        f"{EFFECTS} -k next_hops",
    ),
    Mutation(
        "a client that may be refused is refused for certain",
        "mailcore/effects/clients.py",
        "        certain = len(refusals) == len(open_to)\n",
        "        certain = True\n",
        "tests/effects/test_clients.py -k perhaps",
    ),
    Mutation(
        "a look that ran out of time says that it saw all",
        "mailcore/effects/queued.py",
        "        complete=not deadline.is_over,\n",
        "        complete=True,\n",
        "tests/effects/test_queued.py",
    ),
]
