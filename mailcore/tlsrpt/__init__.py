"""Reports about TLS to the domains that mail was sent to (RFC 8460): made from the deliverers' counts, and sent once a day."""
