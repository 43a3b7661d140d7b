"""What is lost with the settings that Waypost has nothing for: a sentence each, for who runs the machine.

A name is looked for whole, then by its longest beginning in ``BEGINNINGS``.
"""

from __future__ import annotations

__all__ = ["HOUSEKEEPING", "meaning"]

# Postfix's own house: directories, users, what it logs and how it is built. Nothing of mail hangs on them.
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

_REWRITING = "Waypost rewrites no address: who relies on it must have it done before or behind Waypost"
_TESTS = "Waypost has no such test of clients, senders and recipients: mail from networks goes anywhere, other mail to domains"
_BACKSCATTER = (
    "Waypost takes any recipient of its domains, and returns what the next hop refuses: backscatter if they are guessed"
)
_LOGIN_OUT = (
    "Waypost can't log in to a next hop: one that wants a login will refuse mail. Use another, or keep Postfix for it"
)
_LOGIN_IN = (
    "Waypost has no login of clients: add their networks to [relay] networks, or keep a server with a login before it"
)
_FILTERS = (
    "Waypost has no filters and no milters: mail is not scanned, signed or changed. Put the filter before or behind it"
)
_MAILBOXES = "Waypost has no mailboxes and no aliases"

_EXACT = {
    "always_bcc": "no copies are made",
    "content_filter": _FILTERS,
    "delay_warning_time": "senders are not warned of delays, only told at the end",
    "disable_dns_lookups": "Waypost looks up MX hosts unless the next hop stands in brackets: look at [routes]",
    "smtp_dns_support_level": "Waypost looks up MX hosts unless the next hop stands in brackets: look at [routes]",
    "smtpd_peername_lookup": "Waypost looks up no names of clients",
    "disable_vrfy_command": "Waypost answers VRFY to nobody's advantage: it says neither yes nor no",
    "fallback_relay": "there is no fallback: mail waits until its next hop takes it",
    "header_checks": _FILTERS,
    "local_recipient_maps": _BACKSCATTER,
    "mime_header_checks": _FILTERS,
    "nested_header_checks": _FILTERS,
    "body_checks": _FILTERS,
    "myorigin": "mail whose sender has no domain is not completed",
    "notify_classes": "the postmaster gets no copies; the portal and the reports show what happened",
    "relay_recipient_maps": _BACKSCATTER,
    "smtp_bind_address": "connections come from the address the host chooses; look at reverse DNS and SPF",
    "smtp_bind_address6": "connections come from the address the host chooses; look at reverse DNS and SPF",
    "smtp_fallback_relay": "there is no fallback: mail waits until its next hop takes it",
    "smtp_generic_maps": _REWRITING,
    "smtp_header_checks": _FILTERS,
    "smtp_tls_policy_maps": 'TLS is set for a transport, not a destination: make one with tls = "encrypt" and route to it',
    "smtpd_banner": "the greeting is Waypost's",
    "smtpd_helo_required": "Waypost wants a greeting from everybody",
    "smtpd_milters": _FILTERS,
    "non_smtpd_milters": _FILTERS,
    "smtputf8_enable": "Waypost offers SMTPUTF8",
    "recipient_delimiter": _MAILBOXES,
    "sender_bcc_maps": "no copies are made",
    "recipient_bcc_maps": "no copies are made",
    "sender_dependent_relayhost_maps": "routes go by the recipient alone: mail of these senders takes the usual ways",
    "sender_dependent_default_transport_maps": "routes go by the recipient alone: mail of these senders takes the usual ways",
    "defer_transports": "nothing is deferred by itself; suspend the destinations: waypost destination suspend",
}

_BEGINNINGS = {
    "address_verify_": _BACKSCATTER,
    "alias_": _MAILBOXES,
    "anvil_": "Waypost bounds connections of a client, not their rate",
    "append_": _REWRITING,
    "bounce_": "Waypost's bounces have a text of their own (RFC 3464)",
    "canonical_": _REWRITING,
    "dovecot_": _MAILBOXES,
    "forward_": _MAILBOXES,
    "header_": _FILTERS,
    "home_mailbox": _MAILBOXES,
    "lmtp_": "Waypost delivers over SMTP only",
    "local_": _MAILBOXES,
    "luser_": _MAILBOXES,
    "mailbox_": _MAILBOXES,
    "masquerade_": _REWRITING,
    "milter_": _FILTERS,
    "postscreen_": _TESTS,
    "proxy_": "tables are read once, now",
    "receive_override_": _FILTERS,
    "recipient_canonical_": _REWRITING,
    "relocated_": _REWRITING,
    "sender_canonical_": _REWRITING,
    "smtp_sasl_": _LOGIN_OUT,
    "smtp_tls_": "Waypost's client takes the system's TLS settings; certificates are not checked",
    "smtpd_client_": _TESTS,
    "smtpd_data_": _TESTS,
    "smtpd_end_of_data_": _TESTS,
    "smtpd_etrn_": _TESTS,
    "smtpd_helo_": _TESTS,
    "smtpd_proxy_": _FILTERS,
    "smtpd_recipient_": _TESTS,
    "smtpd_sasl_": _LOGIN_IN,
    "smtpd_sender_": _TESTS,
    "smtpd_tls_": "Waypost's server takes the system's TLS settings",
    "soft_bounce": "refusals are final",
    "virtual_alias_": _REWRITING,
    "virtual_": _MAILBOXES,
}
_UNKNOWN = "Waypost has nothing for it: look whether mail depends on it"


def meaning(name: str) -> str:
    if name in _EXACT:
        return _EXACT[name]
    fitting = [beginning for beginning in _BEGINNINGS if name.startswith(beginning)]
    return _BEGINNINGS[max(fitting, key=len)] if fitting else _UNKNOWN
