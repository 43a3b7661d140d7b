"""Tests of mailcore/config."""
