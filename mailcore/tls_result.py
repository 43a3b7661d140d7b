"""Faults of the encryption of a session, in the words of TLS reports (RFC 8460 4.3). A leaf, loaded always."""

from __future__ import annotations

import enum

__all__ = ["CONNECTION_LOST", "MX_NOT_IN_POLICY", "TLSA_MISMATCH", "WAIVED", "Result"]


class Result(enum.StrEnum):
    """The result types of RFC 8460 4.3."""

    STARTTLS_NOT_SUPPORTED = "starttls-not-supported"
    CERTIFICATE_HOST_MISMATCH = "certificate-host-mismatch"
    CERTIFICATE_EXPIRED = "certificate-expired"
    CERTIFICATE_NOT_TRUSTED = "certificate-not-trusted"
    VALIDATION_FAILURE = "validation-failure"
    TLSA_INVALID = "tlsa-invalid"
    DNSSEC_INVALID = "dnssec-invalid"
    DANE_REQUIRED = "dane-required"
    STS_POLICY_FETCH_ERROR = "sts-policy-fetch-error"
    STS_POLICY_INVALID = "sts-policy-invalid"
    STS_WEBPKI_INVALID = "sts-webpki-invalid"


# Reason codes of our own; the others are OpenSSL's.
MX_NOT_IN_POLICY = "mx-not-in-policy"
TLSA_MISMATCH = "no-tlsa-record-matches"
CONNECTION_LOST = "connection-lost"  # or timed out in the handshake, without a word of TLS

WAIVED = "waived"  # in the place of a result: the message itself waives what the domain publishes (RFC 8689)
