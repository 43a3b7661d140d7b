"""DKIM (RFC 6376): the keys, the canonical form of a message, and the signature."""
