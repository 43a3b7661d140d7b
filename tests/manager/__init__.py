"""Tests of mailcore/manager."""
