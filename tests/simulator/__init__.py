"""Tests of mailcore/simulator."""
