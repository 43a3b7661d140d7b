"""Ways to get into the portal, or to stay in it, by what a law closes."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

__all__ = ["MUTATIONS"]

MUTATIONS = [
    Mutation(
        "the only way in is unlinked",
        "appliance/accounts/administering.py",
        "for each in found) and not has_way_in_here(user):\n",
        "for each in found) and False:\n",
        "tests/appliance/accounts/test_unlink.py -k stays",
    ),
    Mutation(
        "the only way in of a user can be removed",
        "appliance/accounts/passkeys.py",
        "        if not get_adapter().can_delete_authenticator(self.get_object()):\n",
        "        if not self.get_object():\n",
        "tests/appliance/accounts/test_passkeys.py -k only_way_in",
    ),
    Mutation(
        "an address counts that the provider has not verified",
        "appliance/accounts/oidc/provider.py",
        '            address=address if is_verified else "",\n',
        "            address=address,\n",
        "tests/appliance/accounts/test_oidc.py -k not_verified",
    ),
    Mutation(
        "a token of another sign-in is believed",
        "appliance/accounts/oidc/provider.py",
        '        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):\n',
        '        if not claims.get("nonce"):\n',
        "tests/appliance/accounts/test_oidc.py -k not_for_this_sign_in",
    ),
    Mutation(
        "a person who left all groups keeps the role",
        "appliance/accounts/oidc/people.py",
        "    if wanted == role_name(user):\n",
        '    if wanted in (role_name(user), ""):\n',
        "tests/appliance/accounts/test_oidc.py -k take_it_away",
    ),
    Mutation(
        "the second factor of the provider counts for a sign-in with a password",
        "appliance/accounts/first_steps.py",
        '        setattr(request, _OF_REQUEST, _step(request.user, bool(by_provider.get("second_factor"))))\n',
        "        setattr(request, _OF_REQUEST, first_step_of(request.user))\n",
        "tests/appliance/accounts/test_oidc.py -k not_got_around",
    ),
    Mutation(
        "an invitation works twice",
        "appliance/accounts/invitations.py",
        "        if not open_invitations().filter(pk=invitation.pk).update(accepted_at=timezone.now()):\n",
        "        if not Invitation.objects.filter(pk=invitation.pk).update(accepted_at=timezone.now()):\n",
        "tests/appliance/accounts/test_invitations.py -k withdrawn",
    ),
    Mutation(
        "the code of an invitation that was sent again still works",
        "appliance/accounts/invitations.py",
        "    if not rows.update(digest=digest_of(code), expires_at=_end()):\n",
        "    if not rows.update(expires_at=_end()):\n",
        "tests/appliance/accounts/test_invitations.py -k expired",
    ),
    Mutation(
        "a session that was ended stays in force",
        "appliance/accounts/sessions.py",
        "    return rows.delete()[0]\n",
        "    return rows.count()\n",
        "tests/appliance/accounts/test_sessions.py -k next_request",
    ),
    Mutation(
        "a page can be read before a given password is changed",
        "appliance/accounts/first_steps.py",
        '    FirstStep.PASSWORD: _ALWAYS_OPEN | {"account_change_password"},\n',
        '    FirstStep.PASSWORD: _ALWAYS_OPEN | {"account_change_password", "audit:entries"},\n',
        "tests/appliance/accounts/test_first_steps.py -k nothing_else_is_reached",
    ),
    Mutation(
        "recovery codes count as a second factor",
        "appliance/accounts/first_steps.py",
        "FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)\n",
        "FACTORS = tuple(Authenticator.Type)\n",
        "tests/appliance/accounts/test_first_steps.py -k recovery_codes",
    ),
    Mutation(
        "a token works before its user has done the first steps",
        "appliance/api/authentication.py",
        "    if step := first_step_of(token.user):\n",
        "    if (step := first_step_of(token.user)) and not token.name:\n",
        "tests/appliance/accounts/test_first_steps.py -k stops_tokens",
    ),
]
