"""Waypost's mail core: everything between a client's MAIL FROM and a next hop's 250. No Django in here."""
