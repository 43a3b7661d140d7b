"""URLs of sign-in, TOTP and the own account: those of allauth's pages that are open, and ours.

There is no sign-up and no password reset by mail: an administrator creates or invites users, and resets passwords. The portal
is used to repair mail, so signing in must not depend on mail.
"""

from __future__ import annotations

from allauth.account import views as account
from allauth.mfa.base import views as mfa
from allauth.mfa.recovery_codes import views as recovery_codes
from allauth.mfa.totp import views as totp
from django.urls import path

from appliance.accounts import invitation_views as invitations
from appliance.accounts import passkeys
from appliance.accounts import session_views as sessions
from appliance.accounts.oidc import views as oidc

urlpatterns = [
    path("login/", account.login, name="account_login"),
    path("logout/", account.logout, name="account_logout"),
    path("inactive/", account.account_inactive, name="account_inactive"),
    path("password/", account.password_change, name="account_change_password"),
    path("reauthenticate/", account.reauthenticate, name="account_reauthenticate"),
    path("password/none/", sessions.no_password, name="account_set_password"),  # allauth leads there
    path("oidc/", oidc.begin, name="account_oidc"),
    path("oidc/callback/", oidc.callback, name="account_oidc_callback"),
    path("sessions/", sessions.listed, name="account_sessions"),
    path("sessions/end-others/", sessions.end_others, name="account_sessions_end_others"),
    path("sessions/<uuid:number>/end/", sessions.end, name="account_session_end"),
    path("identity/unlink/", sessions.unlink_own, name="account_unlink"),
    path("invitations/", invitations.listed, name="account_invitations"),
    path("invitations/<int:pk>/again/", invitations.again, name="account_invitation_again"),
    path("invitations/<int:pk>/withdraw/", invitations.withdraw, name="account_invitation_withdraw"),
    path("invitation/", invitations.enter, name="account_invitation"),
    path("invitation/accept/", invitations.accept, name="account_invitation_accept"),
    path("two-factor/", mfa.index, name="mfa_index"),
    path("two-factor/code/", mfa.authenticate, name="mfa_authenticate"),
    path("two-factor/reauthenticate/", mfa.reauthenticate, name="mfa_reauthenticate"),
    path("two-factor/activate/", totp.activate_totp, name="mfa_activate_totp"),
    path("two-factor/deactivate/", totp.deactivate_totp, name="mfa_deactivate_totp"),
    path("two-factor/recovery-codes/", recovery_codes.view_recovery_codes, name="mfa_view_recovery_codes"),
    path("passkeys/add/", passkeys.add, name="mfa_add_webauthn"),
    path("passkeys/<int:pk>/remove/", passkeys.remove, name="mfa_remove_webauthn"),
    path("passkeys/sign-in/", passkeys.login, name="mfa_login_webauthn"),
    path("passkeys/reauthenticate/", passkeys.again, name="mfa_reauthenticate_webauthn"),
    path(
        "two-factor/recovery-codes/generate/",
        recovery_codes.generate_recovery_codes,
        name="mfa_generate_recovery_codes",
    ),
]
