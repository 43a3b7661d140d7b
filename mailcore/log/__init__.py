"""Lanes, segments, records: the append-only log. It imports nothing else of Waypost. FORMAT.md describes the bytes on disk."""
