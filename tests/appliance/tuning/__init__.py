"""Tests of the tuning pages."""
