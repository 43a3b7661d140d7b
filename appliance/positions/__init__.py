"""Restart positions: where runners resume, what keeps segments alive, what a start would cost."""
