"""The consequence of each setting that Waypost does not support, as a sentence for the operator.

A name is looked up completely, then by its longest prefix in ``_BEGINNINGS``.
"""

from __future__ import annotations

__all__ = ["HOUSEKEEPING", "IMPLICIT_TLS", "RESTRICTION_CLASS", "meaning", "names", "read_with"]

# Internal to Postfix: directories, users, logging and build. Mail does not depend on them.
# fmt: off
HOUSEKEEPING = frozenset((
    "alias_database", "biff", "command_directory", "compatibility_level", "config_directory", "daemon_directory",
    "data_directory", "debug_peer_level", "debug_peer_list", "debugger_command", "default_database_type",
    "default_privs", "html_directory", "import_environment", "export_environment", "in_flow_delay", "mail_name",
    "mail_owner", "mail_spool_directory", "mail_version", "maillog_file", "maillog_file_prefixes", "mailq_path",
    "manpage_directory", "meta_directory", "multi_instance_enable",
    "multi_instance_name", "multi_instance_wrapper", "newaliases_path", "parent_domain_matches_subdomains",
    "queue_directory", "queue_run_delay", "readme_directory", "sample_directory", "sendmail_path", "setgid_group",
    "shlib_directory", "smtp_tls_loglevel", "smtp_tls_session_cache_database", "smtpd_tls_loglevel",
    "smtpd_tls_session_cache_database", "syslog_facility", "syslog_name", "tls_random_source", "hash_queue_depth",
    "hash_queue_names", "enable_long_queue_ids",
))
# fmt: on

_REWRITING = (
    "Waypost rewrites by aliases and canonical addresses ([rewriting]); for this, use a server before or after Waypost"
)
_TESTS = (
    "Waypost has no such checks beside [recipients], [dnsbl] and [greylist]: [relay] networks may send anywhere, other "
    "clients only to [relay] domains"
)
_BACKSCATTER = (
    "Waypost accepts any recipient in its domains unless [recipients] says how they are known (docs/recipients.md); what the "
    "next hop rejects is bounced, which can cause backscatter"
)
_LOGIN_OUT = (
    "passwords are not taken over: copy the source of smtp_sasl_password_maps to a file that only the deliverers can read, and "
    "set [client_auth] password_file; its lines may stay as they are; the next hop must have the level verify (docs/tls.md)"
)
_LOGIN_IN = (
    "Waypost does not ask Dovecot or Cyrus: it has users of its own. Those of Postfix cannot be copied, because their "
    "passwords are not known; add each with waypost user add (docs/submission.md)"
)
_FILTERS = (
    "Waypost has no filters of its own, but speaks to milters; run the filter as a milter, or before or after Waypost"
)
_PARTS = "header checks are not applied to MIME parts of a message, nor to messages in it"
_MILTERS = (
    "Waypost has no such setting; milters get the macros and the version 6 of the protocol that Postfix uses by default"
)
_MAILBOXES = (
    "Waypost has no mailboxes, and reads no aliases of local(8); aliases of whole addresses are in [rewriting] "
    "virtual_alias_maps (docs/aliases.md)"
)
_PROXY = (
    "set proxy of a [[listener]] to the networks of the balancers (docs/front.md); without it their connections fail, because "
    "a PROXY header is a wrong command"
)
IMPLICIT_TLS = (
    "Waypost's client encrypts with STARTTLS only, so mail to a server that expects TLS at once (port 465) is not delivered: "
    "it waits, and bounces in the end. Change the port in the route, for example to the server's submission port 587"
)

_EXACT = {
    "content_filter": _FILTERS,
    "2bounce_notice_recipient": "if notify_classes has 2bounce, set double_bounce_recipient in [bounce]",
    "cleanup_service_name": "all mail is completed in one way, with the settings of main.cf; see the findings on the "
    "options of that service",
    "disable_dns_lookups": "Waypost looks up MX hosts unless the next hop is in brackets; check [routes]",
    "smtp_dns_support_level": "Waypost looks up MX hosts unless the next hop is in brackets; check [routes]",
    "ignore_mx_lookup_error": "mail whose MX look-up fails stays in the queue and is tried again, as by Postfix's default; "
    "it is never sent to the address of the domain itself",
    "postscreen_upstream_proxy_protocol": _PROXY,
    "smtp_address_preference": "addresses of a host alternate between IPv6 and IPv4",
    "smtp_body_checks": _FILTERS,
    "smtp_mime_header_checks": _FILTERS,
    "smtp_nested_header_checks": _FILTERS,
    "smtp_sender_dependent_authentication": "in [client_auth] password_file, a line with an address is the login of that "
    "sender's mail towards next hops that have a line, too (docs/tls.md)",
    "smtp_tls_wrappermode": IMPLICIT_TLS,
    "smtpd_milter_maps": "every client has the milters of its listener, also one that Postfix exempts (DISABLE)",
    "smtpd_restriction_classes": f"Waypost has no classes of restrictions. {_TESTS}",
    "smtpd_upstream_proxy_protocol": _PROXY,
    "disable_vrfy_command": "Waypost answers VRFY with 252, without confirming the address",
    "local_recipient_maps": _BACKSCATTER,
    "mime_header_checks": _PARTS,
    "nested_header_checks": _PARTS,
    "smtpd_client_auth_rate_limit": "[auth] limits failed logins, not all",
    "smtpd_client_new_tls_session_rate_limit": "[clients] connection_rate_limit counts connections, not TLS handshakes",
    "remote_header_rewrite_domain": "header fields are changed for local_header_rewrite_clients only",
    "body_checks": _FILTERS,
    "notify_classes": "the postmaster gets no copies; the portal and the reports show what happened",
    "smtp_bind_address": "the kernel chooses the source address; check reverse DNS and SPF",
    "smtp_bind_address6": "the kernel chooses the source address; check reverse DNS and SPF",
    "smtp_generic_maps": _REWRITING,
    "smtp_header_checks": _FILTERS,
    "smtpd_banner": "the greeting is Waypost's",
    "smtpd_helo_required": "Waypost always requires HELO or EHLO",
    "smtpd_sender_login_maps": "give each user its sender addresses: waypost user add NAME --sender ADDRESS",
    "smtpd_sasl_authenticated_header": "Received has no login; the log has sasl_username, and waypost queue show names it",
    "smtputf8_enable": "Waypost offers SMTPUTF8",
    "defer_transports": "no automatic deferral; suspend the destinations with waypost destination suspend",
}

RESTRICTION_CLASS = f"a class of restrictions. {_TESTS}"

_BEGINNINGS = {
    "address_verify_": _BACKSCATTER,
    "alias_": _MAILBOXES,
    "anvil_": "Waypost does not report the rates of clients",
    "append_": _REWRITING,
    "bounce_": "Waypost uses its own bounce text (RFC 3464)",
    "canonical_": _REWRITING,
    "dovecot_": _MAILBOXES,
    "forward_": _MAILBOXES,
    "header_": _FILTERS,
    "home_mailbox": _MAILBOXES,
    "lmtp_": "Waypost has one setting for SMTP and LMTP, or none",
    "local_": _MAILBOXES,
    "luser_": _MAILBOXES,
    "mailbox_": _MAILBOXES,
    "masquerade_": _REWRITING,
    "milter_": _MILTERS,
    "postscreen_": _TESTS,
    "proxy_": "tables are read once, during this import",
    "receive_override_": _FILTERS,
    "recipient_canonical_": _REWRITING,
    "relocated_": _REWRITING,
    "sender_canonical_": _REWRITING,
    "smtp_sasl_": _LOGIN_OUT,
    "smtp_tls_": "Waypost's client uses the system's TLS settings; docs/tls.md has the settings it has",
    "smtpd_client_": _TESTS,
    "smtpd_data_": _TESTS,
    "smtpd_end_of_data_": _TESTS,
    "smtpd_etrn_": _TESTS,
    "smtpd_helo_": _TESTS,
    "smtpd_proxy_": _FILTERS,
    "smtpd_recipient_": _TESTS,
    "smtpd_sasl_": _LOGIN_IN,
    "smtpd_sender_": _TESTS,
    "smtpd_tls_": "Waypost's server uses the system's TLS settings",
    "soft_bounce": "rejections are permanent",
    "virtual_alias_": _REWRITING,
    "virtual_": _MAILBOXES,
}
_CERTIFICATE = "read with the other settings of the server's TLS; see the finding on the certificate"
_CLIENT_TLS = "read with smtp_tls_security_level, which decides; see the findings on tls of each transport"
# Settings that are translated with another one, whose finding says what became of both.
_READ_WITH = {
    "inet_protocols": "read with inet_interfaces: [receiver] listen has only addresses of these protocols",
    "mynetworks_style": "has no effect in Postfix, because mynetworks is set",
    "parent_domain_matches_subdomains": "read with relay_domains: it decides whether a domain includes its subdomains",
    "smtp_connection_cache_on_demand": "Waypost keeps connections, too; see [deliverer] connection_idle_s",
    "smtpd_sasl_auth_enable": "read for each smtpd line of master.cf: its [[listener]] has auth",
    "smtpd_tls_auth_only": "Waypost takes a login only under TLS, in any case",
    "smtpd_tls_cert_file": _CERTIFICATE,
    "smtpd_tls_chain_files": _CERTIFICATE,
    "smtpd_tls_key_file": _CERTIFICATE,
    "smtpd_tls_security_level": "read for each smtpd line of master.cf: its [[listener]] has tls",
    "smtpd_use_tls": _CERTIFICATE,
    "smtp_enforce_tls": _CLIENT_TLS,
    "smtp_tls_security_level": _CLIENT_TLS,
    "smtp_use_tls": _CLIENT_TLS,
}
# Settings that name tables: each table that is read has a finding of its own, at its file.
_TABLES = frozenset(
    (
        "relay_recipient_maps",
        "sender_dependent_default_transport_maps",
        "sender_dependent_relayhost_maps",
        "smtp_tls_policy_maps",
        "transport_maps",
    )
)
_READ_TABLES = "read; the findings on its tables and their lines say what became of them"
_READ = "read; with this value there is nothing to take over"
_UNKNOWN = "not supported by Waypost; check whether your mail depends on it"


def read_with(name: str, value: str) -> str:
    """Returns what became of a setting that was read, and has no finding of its own."""
    if name in _TABLES and value:
        return _READ_TABLES
    return _READ_WITH.get(name, _READ)


def names() -> list[str]:
    """Returns the settings whose consequence is known; the beginning of several ends with an ellipsis."""
    return sorted([*_EXACT, *(f"{each}…" if each.endswith("_") else each for each in _BEGINNINGS)])


def meaning(name: str) -> str:
    """Returns the consequence of not taking over a setting."""
    if name in _EXACT:
        return _EXACT[name]
    fitting = [beginning for beginning in _BEGINNINGS if name.startswith(beginning)]
    return _BEGINNINGS[max(fitting, key=len)] if fitting else _UNKNOWN
