"""Deliberate breaks of the check of senders and of seals."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

CHECK = "tests/receiver/test_sender_check.py"

MUTATIONS = [
    Mutation(
        "results that cannot be read are left in mail",
        "mailcore/authenticity/identifier.py",
        "    return found is None or _comparable(found) == _comparable(authserv_id)\n",
        "    return found is not None and _comparable(found) == _comparable(authserv_id)\n",
        f"{CHECK} -k claims_to_be_ours",
    ),
    Mutation(
        "users may forge our results",
        "mailcore/authenticity/policy.py",
        "        if is_ours:\n            self._remove_forged(message)\n",
        "        if is_ours:\n",
        f"{CHECK} -k user_who_logged_in",
    ),
    Mutation(
        "a dropped Received field hides the author's first field",
        "mailcore/receiver/checked_session.py",
        "own_fields = 1 if self._section is None else self._section.own_fields",
        "own_fields = 1",
        "tests/receiver/test_header_checks.py -k hides_no_field",
    ),
    Mutation(
        "users of a submission listener may forge our results",
        "mailcore/receiver/server_context.py",
        "        self.sender_check = sender_check  # None: it is off\n",
        "        is_used = sender_check is not None and sender_check.is_for(rule.purpose)\n"
        "        self.sender_check = sender_check if is_used else None\n",
        f"{CHECK} -k users_of_a_submission",
    ),
    Mutation(
        "an evaluation with a bug is an error of the session",
        "mailcore/authenticity/policy.py",
        "        except Exception as error:\n",
        "        except KeyError as error:\n",
        f"{CHECK} -k bug",
    ),
    Mutation(
        "a value can end the field of the results",
        "mailcore/authenticity/results_field.py",
        '    return _QUOTED_PAIR.sub(r"\\\\\\1", _UNSAFE.sub("?", text[:VALUE_CHARACTERS_MAX]))\n',
        '    return _UNSAFE.sub("?", text[:VALUE_CHARACTERS_MAX])\n',
        "tests/authenticity/test_results_field.py",
    ),
    Mutation(
        "an address in a display name is the author's",
        "mailcore/authenticity/author.py",
        '        part = part[part.index("<") + 1 : -1]\n',
        '        part = part[: part.index("<")] or part[1:-1]\n',
        "tests/authenticity/test_author.py",
    ),
    Mutation(
        "text behind a signed part of the body counts as signed",
        "mailcore/authenticity/dkim.py",
        "    if body.is_partial(signature) and not takes_partial:\n",
        "    if False:\n",
        "tests/authenticity/test_evaluation.py -k longer_than",
    ),
    Mutation(
        "a chain that has failed is continued",
        "mailcore/deliverer/sealing.py",
        '    if any(name == b"arc-seal" and _says_fail(field) for name, field in fields):\n',
        "    if False:\n",
        "tests/deliverer/test_sealing.py -k change",
    ),
]
