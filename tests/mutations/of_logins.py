"""Ways to break logins and certificates: a login in the clear, one that outlives its user; and to shut others out."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
    Mutation(
        "AUTH is accepted in the clear",
        "mailcore/receiver/auth_session.py",
        "        elif not self.tls:\n",
        "        elif not self.context:\n",
        "tests/receiver/test_auth.py -k in_the_clear",
    ),
    Mutation(
        "AUTH is offered in the clear",
        "mailcore/esmtp.py",
        "if offering.mechanisms and offering.is_encrypted else None",
        "if offering.mechanisms else None",
        "tests/receiver/test_auth.py -k in_the_clear",
    ),
    Mutation(
        "a login stays good for the whole session",
        "mailcore/receiver/authentication.py",
        "return now is not None and now.enabled and now.verifier == user.verifier",
        "return True",
        "tests/receiver/test_auth.py -k no_longer",
    ),
    Mutation(
        "an unknown user is refused without a check",
        "mailcore/receiver/authentication.py",
        "        verifier = user.verifier if user is not None else self.users.decoy(name)\n",
        '        verifier = user.verifier if user is not None else "$"\n',
        "tests/receiver/test_auth.py -k costs_as_much",
    ),
    Mutation(
        "a failed login is not counted",
        "mailcore/receiver/authentication.py",
        '        self._counts.failures.add(f"user {name.lower()}")\n',
        "",
        "tests/receiver/test_auth.py -k throttled",
    ),
    Mutation(
        "a proof is compared though its try was not counted",
        "mailcore/receiver/auth_session.py",
        "            if self._is_counted:\n",
        "            if self._is_counted or step.name:\n",
        "tests/receiver/test_auth.py -k says_nothing_of_its_proof",
    ),
    Mutation(
        "a throttled login may go on to its proof",
        "mailcore/receiver/auth_session.py",
        "            if step.name and authentication.throttled(step.name, self.address):\n",
        "            if not step and authentication.throttled(step.name, self.address):\n",
        "tests/receiver/test_auth.py -k before_a_proof",
    ),
    Mutation(
        "the directory of the users is not synced",
        "mailcore/users/user_file.py",
        "        os.fsync(directory)\n",
        "        pass\n",
        "tests/users/test_user_file.py -k on_disk",
    ),
    Mutation(
        "invented names push out the failures of a network",
        "mailcore/supervisor/shared_counts.py",
        "            if (period, counts[0] + counts[1]) < least:\n",
        "            if (period, 0.0) < least:\n",
        "tests/supervisor/test_shared_counts.py -k flood",
    ),
    Mutation(
        "an expired certificate replaces a valid one",
        "mailcore/receiver/certificates.py",
        "            return self._refuse(slot, why)\n",
        "            pass\n",
        "tests/receiver/test_certificates.py -k keeps_the_one_before",
    ),
    Mutation(
        "a receiver that is restarted begins without the certificate that the others use",
        "mailcore/receiver/certificates.py",
        "            slot.loaded = self._kept_before(slot.pair)\n",
        "            pass\n",
        "tests/receiver/test_certificates.py -k what_the_others_have",
    ),
    Mutation(
        "a certificate that is kept by half is used",
        "mailcore/supervisor/kept_pairs.py",
        "    if not data or hashlib.sha256(data).digest() != digest:\n",
        "    if not data:\n",
        "tests/receiver/test_certificates.py -k by_half",
    ),
    Mutation(
        "untrusted clients have the connections that are reserved",
        "mailcore/receiver/guard.py",
        "        return self._connections_max - (0 if trusted else self.reserve if submission else 2 * self.reserve)\n",
        "        return self._connections_max\n",
        "tests/receiver/test_guard.py -k never_have",
    ),
    Mutation(
        "the rate of the data is not measured",
        "mailcore/receiver/guard.py",
        "        slow = had - mark.data_bytes < self._settings.data_rate_min * passed_s\n",
        "        slow = False\n",
        "tests/receiver/test_guard.py -k minimum_rate",
    ),
    Mutation(
        "chunks stop the clock of a message",
        "mailcore/receiver/guard.py",
        " and not session.is_receiving:\n",
        ":\n",
        "tests/receiver/test_guard.py -k stop_the_clock",
    ),
    Mutation(
        "a user who has logged in may give any priority to mail",
        "mailcore/receiver/session.py",
        "limits.login_priority_max if self.login else limits.priority_max if self.trusted else None\n",
        "limits.priority_max if self.trusted else None\n",
        "tests/receiver/test_priority.py -k logged_in",
    ),
]
