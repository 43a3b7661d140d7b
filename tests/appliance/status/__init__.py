"""Tests of the pages of restart positions and routes."""
