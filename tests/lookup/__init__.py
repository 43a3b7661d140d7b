"""Tests of mailcore/lookup."""
