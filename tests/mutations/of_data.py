"""Ways to break the checksums of data, and the report of tuned values."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

CARRYING = "mailcore/manager/carrying.py"
CARRYING_TESTS = "tests/manager/test_carrying.py"

MUTATIONS = [
    Mutation(
        "larger messages are kept in memory without end",
        "mailcore/receiver/inline_room.py",
        "        if self.reserved_bytes + self.limit_bytes > self._memory_bytes:\n",
        "        if self._memory_bytes < 0:\n",
        "tests/receiver/test_inline_room.py",
    ),
    Mutation(
        "an envelope is believed without the checksum of its record",
        "mailcore/log/damaged_data.py",
        "    return whole == crc\n",
        "    return True\n",
        "tests/log/test_damaged_data.py",
    ),
    Mutation(
        "a block is sent although its checksum does not match",
        "mailcore/log/data_blocks.py",
        "    if not is_good(sums, start, block):\n",
        "    if not block:\n",
        "tests/log/test_data_blocks.py tests/deliverer/test_transaction.py",
    ),
    Mutation(
        "an answer of LMTP counts for all recipients",
        "mailcore/deliverer/transaction.py",
        "        replies = await connection.replies(len(accepted), limits.final_timeout_s)\n",
        "        replies = len(accepted) * await connection.replies(1, limits.final_timeout_s)\n",
        "tests/deliverer/test_lmtp.py",
    ),
    Mutation(
        "recipients of LMTP without an answer take the last one",
        "mailcore/deliverer/outcome.py",
        "        failure = failed(connection, SENDING_DOT)\n",
        "        last = verdicts[-1]\n        failure = last.status, last.dsn, last.reply\n",
        "tests/deliverer/test_lmtp.py",
    ),
    Mutation(
        "released mail is held again by its route",
        "mailcore/manager/route_hold.py",
        '            _order(context, active, "reroute", {NUMBERS: some, "route": route})\n',
        "",
        "tests/end_to_end/test_built_in_routes.py -k not_held_again",
    ),
    Mutation(
        "a loop of aliases has no end",
        "mailcore/rewriting/rewriting.py",
        "        found = None if key in above else _find(maps.aliases, name, budget)\n",
        "        found = _find(maps.aliases, name, budget)\n",
        "tests/rewriting/test_rewriting.py",
    ),
    Mutation(
        "the patterns of all addresses of a message have no bound together",
        "mailcore/rewriting/address_map.py",
        "            seconds = PATTERN_TIMEOUT_S if budget is None else budget.for_pattern()\n",
        "            seconds = PATTERN_TIMEOUT_S\n",
        "tests/rewriting/test_rewriting.py -k have_one_time",
    ),
    Mutation(
        "a recipient of two aliases gets two copies",
        "mailcore/rewriting/rewriting.py",
        "            if key not in final:\n",
        "            key = f'{key} {len(final)}'\n            if key not in final:\n",
        "tests/rewriting/test_rewriting.py",
    ),
    Mutation(
        "mail is accepted without the aliases that it needs",
        "mailcore/config/live_maps.py",
        '            return Rewritten(envelope, tuple(more), "the files of [rewriting] cannot be used")\n',
        "            return Rewritten(envelope, tuple(more))\n",
        "tests/end_to_end/test_rewriting.py -k usable",
    ),
    Mutation(
        "the dot follows data that broke off",
        "mailcore/deliverer/transaction.py",
        "            connection.abort()  # without the dot the server has got nothing\n",
        "            connection.send(b'\\r\\n.\\r\\n')\n            await connection.replies(1, limits.final_timeout_s)\n",
        "tests/deliverer/test_transaction.py -k block_that_does_not_match",
    ),
    Mutation(
        "the last chunk follows one that was refused",
        "mailcore/deliverer/chunks.py",
        "        if reply.code >= 300:\n            return _Refusal(reply, knows)\n",
        "        if reply.code >= 600:\n            return _Refusal(reply, knows)\n",
        "tests/deliverer/test_chunks.py -k refused_chunk",
    ),
    Mutation(
        "an unasked reply counts for the last chunk",
        "mailcore/deliverer/chunks.py",
        "    if refusal is None and not connection.is_quiet:\n",
        "    if refusal is None and connection.failure is not None:\n",
        "tests/deliverer/test_chunks.py -k success_before",
    ),
    Mutation(
        "a reply to the last chunk of LMTP counts for all recipients",
        "mailcore/deliverer/chunks.py",
        "        replies += await connection.replies(len(accepted) - 1, timeout_s)\n",
        "        replies *= len(accepted)\n",
        "tests/deliverer/test_chunks.py -k lmtp",
    ),
    Mutation(
        "a 500 for a recipient of LMTP after the last chunk counts for all",
        "mailcore/deliverer/chunks.py",
        '        return enhanced_code(self.reply).split(".")[1] in _OF_COMMANDS\n',
        "        return True\n",
        "tests/deliverer/test_chunks.py -k 500_for_one_recipient",
    ),
    Mutation(
        "a dot that was not stuffed stays in chunks",
        "mailcore/deliverer/unstuffed.py",
        'block = block.replace(b"\\r\\n.", b"\\r\\n")',
        'block = block.replace(b"\\r\\n..", b"\\r\\n.")',
        "tests/deliverer/test_chunks.py -k octets",
    ),
    Mutation(
        "a spool file of another size is sent",
        "mailcore/log/data_blocks.py",
        "    if file_bytes and size != file_bytes:\n",
        "    if file_bytes and size < file_bytes:\n",
        "tests/log/test_data_blocks.py tests/deliverer/test_message_data.py",
    ),
    Mutation(
        "checksums are made again when data moves to the spool",
        "mailcore/manager/passes.py",
        "        sums = active.envelope.data_sums or sums_of(data)\n",
        "        sums = sums_of(data)\n",
        "tests/manager/test_damage.py -k moves",
    ),
    Mutation(
        "a damaged message is only deferred",
        "mailcore/manager/flow.py",
        "                hold_damaged(context, active, frame.damage)\n",
        "                pass\n",
        "tests/manager/test_damage.py -k reason",
    ),
    Mutation(
        "an unknown key of tuned.toml is passed over in silence",
        "mailcore/config/tuned_check.py",
        '            yield _fault((scope, name), f"is not a parameter here{_nearest(name, allowed)}")\n',
        "",
        "tests/config/test_tuned_check.py",
    ),
    Mutation(
        "a message that may have a spool file is carried",
        CARRYING,
        "lane == HOLD or active.may_have_file or context.stalled",
        "lane == HOLD or context.stalled",
        f"{CARRYING_TESTS} -k after_a_kill",
    ),
    Mutation(
        "carried data in front of a checkpoint is not bounded",
        CARRYING,
        "        return carried <= most\n",
        "        return True\n",
        f"{CARRYING_TESTS} -k bounded",
    ),
    Mutation(
        "a replacement names a spool file although it carries its data",
        "mailcore/queue/rewrite.py",
        "    spooled = envelope.data is DataPlace.INLINE and active.carried is None\n",
        "    spooled = envelope.data is DataPlace.INLINE\n",
        f"{CARRYING_TESTS} -k however_often",
    ),
    Mutation(
        "a bare CR in the data is not noticed",
        "mailcore/receiver/data.py",
        'in (None, "\\r\\n")',
        'in (None, "\\r\\n", ("\\r", "\\r\\n"))',
        "tests/receiver/test_data.py -k all_short_data",
    ),
    Mutation(
        "a retry fills the active set beyond its limit",
        "mailcore/manager/admission.py",
        "        return deferred < limit and len(context.queue.active) < context.scheduler",
        "        return deferred >= 0 or len(context.queue.active) < context.scheduler",
        "tests/manager/test_retry_at_once.py -k no_room",
    ),
    Mutation(
        "a DNS list that is dead is asked for each client",
        "mailcore/receiver/dns_lists.py",
        "        if late < LATE_MAX or not rest_s:\n",
        "        if True:\n",
        "tests/receiver/test_dns_lists.py -k dead_list",
    ),
]
