"""Lanes, segments, records: the append-only log. Knows nobody else in Waypost. The format's page is FORMAT.md."""
