"""Tests of mailcore/export."""
