"""Ways to break the maildrop, and the commands of other mail servers."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

TAKEN = "tests/pickup/test_taking.py"

MUTATIONS = [
    Mutation(
        "a message of the maildrop gets its name before it is synced",
        "mailcore/pickup/dropped.py",
        "        disk.sync(self._fd)\n        disk.replace",
        "        disk.replace",
        TAKEN,
    ),
    Mutation(
        "the names of the maildrop are not synced",
        "mailcore/pickup/dropped.py",
        "            disk.sync_directory(self._directory)\n        except",
        "            pass\n        except",
        f"{TAKEN} -k part_of_a_file",
    ),
    Mutation(
        "a message is removed from the maildrop before its lane is synced",
        "mailcore/pickup/taking.py",
        "            self._writer.sync()\n            self._to_remove = [name for name, _, _ in appended]\n",
        "            self._to_remove = [name for name, _, _ in appended]\n            self._remove()\n"
        "            self._writer.sync()\n",
        TAKEN,
    ),
    Mutation(
        "a start reports messages whose files are still in the maildrop",
        "mailcore/pickup/taking.py",
        "        self._to_remove = self._unreported(queue, lane)\n",
        "        self._to_remove: list[str] = []\n",
        TAKEN,
    ),
    Mutation(
        "mail that a milter refuses for now is queued",
        "mailcore/pickup/composing.py",
        "        if filtered.why:\n",
        "        if not filtered:\n",
        "tests/pickup/test_filtering.py -k refused_for_now",
    ),
    Mutation(
        "the recipients that a milter refuses are forgotten",
        "mailcore/pickup/filtering.py",
        "        return kept._replace(refused=self._returned)",
        "        return kept",
        "tests/pickup/test_filtering.py -k one_recipient",
    ),
    Mutation(
        "the manager reads the pickup's lane before its report",
        "mailcore/manager/manager.py",
        "or written or picked_up or lane in self._taken_over:",
        "or written or lane in self._taken_over:",
        "tests/manager/test_pickup_lane.py",
    ),
    Mutation(
        "an address list is guessed at",
        "mailcore/cli/postfix/addresses.py",
        '    if " " in words:\n        raise NotAddresses(text)\n',
        "",
        "tests/cli/postfix/test_addresses.py",
    ),
]
