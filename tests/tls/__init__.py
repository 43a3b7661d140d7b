"""Tests of mailcore/tls."""
