"""Routes, shown and checked."""
