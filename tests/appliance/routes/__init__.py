"""Tests of the routes: shown, and where an address would go."""
