"""Tests of mailcore/supervisor."""
