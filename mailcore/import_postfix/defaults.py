"""Postfix's defaults of the parameters that are read here, from ``postconf -d`` of Postfix 3.7.

A test compares the table with the installed Postfix. Names of the host are not constants: ``of_host`` makes them. Two names
are not read here, but often part of other settings: data_directory, default_database_type.
"""

from __future__ import annotations

__all__ = ["DEFAULTS", "of_host"]

DEFAULTS = {
    "bounce_queue_lifetime": "5d",
    "compatibility_level": "0",
    "data_directory": "/var/lib/postfix",
    "default_database_type": "hash",
    "default_delivery_slot_cost": "5",
    "default_delivery_slot_discount": "50",
    "default_delivery_slot_loan": "3",
    "default_destination_concurrency_failed_cohort_limit": "1",
    "default_destination_concurrency_limit": "20",
    "default_destination_concurrency_negative_feedback": "1",
    "default_destination_concurrency_positive_feedback": "1",
    "default_destination_rate_delay": "0s",
    "default_destination_recipient_limit": "50",
    "default_extra_recipient_limit": "1000",
    "default_minimum_delivery_slots": "3",
    "default_process_limit": "100",
    "default_recipient_limit": "20000",
    "default_recipient_refill_delay": "5s",
    "default_recipient_refill_limit": "100",
    "default_transport": "smtp",
    "default_transport_rate_delay": "0s",
    "destination_concurrency_feedback_debug": "no",
    "hopcount_limit": "50",
    "inet_interfaces": "all",
    "inet_protocols": "all",
    "initial_destination_concurrency": "5",
    "line_length_limit": "2048",
    "maximal_backoff_time": "4000s",
    "maximal_queue_lifetime": "5d",
    "message_size_limit": "10240000",
    "minimal_backoff_time": "300s",
    "mydestination": "$myhostname, localhost.$mydomain, localhost",
    "mynetworks_style": "${{$compatibility_level} <level {2} ? {subnet} : {host}}",
    "myorigin": "$myhostname",
    "parent_domain_matches_subdomains": "debug_peer_list,fast_flush_domains,mynetworks,permit_mx_backup_networks,"
    "qmqpd_authorized_clients,relay_domains,smtpd_access_maps",
    "qmgr_message_active_limit": "20000",
    "qmgr_message_recipient_limit": "20000",
    "qmgr_message_recipient_minimum": "10",
    "queue_directory": "/var/spool/postfix",
    "queue_minfree": "0",
    "relay_domains": "${{$compatibility_level} <level {2} ? {$mydestination} : {}}",
    "relay_transport": "relay",
    "relayhost": "",
    "smtp_connect_timeout": "30s",
    "smtp_connection_cache_on_demand": "yes",
    "smtp_connection_cache_time_limit": "2s",
    "smtp_connection_reuse_count_limit": "0",
    "smtp_data_done_timeout": "600s",
    "smtp_data_xfer_timeout": "180s",
    "smtp_enforce_tls": "no",
    "smtp_helo_name": "$myhostname",
    "smtp_helo_timeout": "300s",
    "smtp_mail_timeout": "300s",
    "smtp_mx_address_limit": "5",
    "smtp_rcpt_timeout": "300s",
    "smtp_tcp_port": "smtp",
    "smtp_tls_security_level": "",
    "smtp_use_tls": "no",
    "smtpd_client_connection_count_limit": "50",
    "smtpd_hard_error_limit": "${stress?{1}:{20}}",
    "smtpd_peername_lookup": "yes",
    "smtpd_recipient_limit": "1000",
    "smtpd_relay_restrictions": "${{$compatibility_level} <level {1} ? {} : "
    "{permit_mynetworks, permit_sasl_authenticated, defer_unauth_destination}}",
    "smtpd_sasl_auth_enable": "no",
    "smtpd_timeout": "${stress?{10}:{300}}s",
    "smtpd_tls_cert_file": "",
    "smtpd_tls_chain_files": "",
    "smtpd_tls_key_file": "$smtpd_tls_cert_file",
    "smtpd_tls_security_level": "",
    "smtpd_tls_wrappermode": "no",
    "smtpd_use_tls": "no",
    "transport_maps": "",
    "transport_retry_time": "60s",
    "virtual_alias_domains": "$virtual_alias_maps",
    "virtual_alias_maps": "$virtual_maps",
    "virtual_mailbox_domains": "$virtual_mailbox_maps",
    "virtual_mailbox_maps": "",
}

_NO_DOMAIN = "localdomain"  # Postfix's name for the domain of a host without one


def of_host(hostname: str, given: dict[str, str]) -> dict[str, str]:
    """Returns defaults of ``myhostname`` and ``mydomain``, each derived from the other as in mail_params(3).

    ``hostname``: "" if it is not known; then both are empty.
    """
    mydomain = given.get("mydomain", "")
    if not hostname and "myhostname" not in given:
        return {"myhostname": "", "mydomain": ""}
    name = hostname if "." in hostname else f"{hostname}.{mydomain or _NO_DOMAIN}"
    full = given.get("myhostname", name)
    return {"myhostname": name, "mydomain": full.partition(".")[2] or _NO_DOMAIN}
