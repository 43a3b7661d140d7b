"""Ways to let a program do more over HTTP than its token may, or do it twice, or do something else than was asked."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
    Mutation(
        "an operation does not look at the role of the token's user",
        "appliance/api/authentication.py",
        "        if role is None or role < self.least:\n",
        "        if role is None:\n",
        "tests/appliance/api/test_access.py -k table_says",
    ),
    Mutation(
        "an operation does not look at the scopes of a token",
        "appliance/api/authentication.py",
        "        if self.scopes and not any(found.has(scope) for scope in self.scopes):\n",
        "        if self.scopes and not found.scopes:\n",
        "tests/appliance/api/test_access.py -k table_says",
    ),
    Mutation(
        "a token of a disabled user works",
        "appliance/api/authentication.py",
        '    return "" if token.user.is_active else "the user is disabled"\n',
        '    return ""\n',
        "tests/appliance/api/test_access.py -k audit_has_the_refusal",
    ),
    Mutation(
        "an expired token works",
        "appliance/api/models.py",
        "        return self.revoked_at is None and self.expires_at > timezone.now()\n",
        "        return self.revoked_at is None\n",
        "tests/appliance/api/test_access.py -k has_ended",
    ),
    Mutation(
        "a parameter that an operation does not have is left out",
        "appliance/api/operation.py",
        "        if name not in known:\n",
        "        if name == known:\n",
        "tests/appliance/api/test_reads.py -k never_left_out",
    ),
    Mutation(
        "a change is started without the number that was counted",
        "appliance/api/queue_changes.py",
        "    if body.matched != it.matched:\n",
        "    if body.matched > it.matched:\n",
        "tests/appliance/api/test_changes.py -k more_or_less",
    ),
    Mutation(
        "a value that another user set is replaced",
        "appliance/api/tuning.py",
        '        if "before" in each.model_fields_set and not same(',
        '        if "before" not in each.model_fields_set and not same(',
        "tests/appliance/api/test_changes.py -k another_user",
    ),
    Mutation(
        "a key gives its answer to another request",
        "appliance/api/idempotency.py",
        "    if row.digest != digest:\n",
        "    if not row.digest:\n",
        "tests/appliance/api/test_idempotency.py -k another_body",
    ),
    Mutation(
        "a request that was interrupted is said to be worked on forever",
        "appliance/api/idempotency.py",
        "        if is_gone(row.worker) or timezone.now() - row.begun_at > patience:\n",
        "        if timezone.now() - row.begun_at > 1_000 * patience:\n",
        "tests/appliance/api/test_idempotency.py -k killed",
    ),
    Mutation(
        "an answer after which a change may have been made is not kept",
        "appliance/api/idempotency.py",
        "        HTTPStatus.SERVICE_UNAVAILABLE,\n",
        "        HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,\n",
        "tests/appliance/api/test_idempotency.py -k may_have_been_done",
    ),
    Mutation(
        "an answer to a message is that of its beginning",
        "appliance/common/door.py",
        '                return client.ask("inject_end", Injected, why=why)\n',
        '                return client.ask("inject_data", Injected, {"data": b""})\n',
        "tests/appliance/api/test_sending.py -k synced",
    ),
    Mutation(
        "a change of the command line is sent again with another key",
        "mailcore/terminal/remote.py",
        "                for part in self._answer(operation, body, wait_s, key):\n",
        "                for part in self._answer(operation, body, wait_s, f'{key}-{attempt}'):\n",
        "tests/cli/test_remote_client.py -k sent_again",
    ),
    Mutation(
        "a change of the command line is not in the audit log",
        "appliance/api/control.py",
        '    if not right.action or given.get("dry_run") or given.get("check"):\n',
        "    if right.action:\n",
        "tests/appliance/api/test_control.py -k audited",
    ),
    Mutation(
        "the token goes to a portal with another certificate",
        "mailcore/terminal/remote.py",
        "    if not hmac.compare_digest(found, target.fingerprint):\n",
        "    if not found:\n",
        "tests/cli/test_remote_client.py -k before_the_token",
    ),
    Mutation(
        "a control character passes into a field",
        "appliance/api/bodies.py",
        '_CONTROLS = frozenset(("Cc", "Cs", "Zl", "Zp"))\n',
        '_CONTROLS = frozenset(("Cs", "Zl", "Zp"))\n',
        "tests/appliance/api/test_sending.py -k further_field",
    ),
    Mutation(
        "the audit log has the arguments of a control operation as they are",
        "appliance/api/control.py",
        "    return given | told\n",
        "    return told | given\n",
        "tests/appliance/api/test_secrets.py -k reaches_the_core",
    ),
    Mutation(
        "a fault of a password repeats it",
        "appliance/api/control.py",
        "        if first not in SECRET:\n",
        "        if first in SECRET:\n",
        "tests/appliance/api/test_secrets.py -k repeats_no_secret",
    ),
    Mutation(
        "a password that was made is kept with its answer",
        "appliance/api/operation.py",
        "        told = msgspec.structs.replace(found, **dict.fromkeys(told_once))\n",
        "        told = msgspec.structs.replace(found)\n",
        "tests/appliance/api/test_secrets.py -k told_once",
    ),
    Mutation(
        "the digest of a request needs no key",
        "appliance/api/idempotency.py",
        '    digest = salted_hmac(SALT, b"", algorithm="sha256")\n',
        '    digest = salted_hmac(SALT, b"", secret="", algorithm="sha256")\n',
        "tests/appliance/api/test_secrets.py -k be_guessed",
    ),
]
