"""Rewriting of envelopes: aliases and canonical addresses, out of files."""
