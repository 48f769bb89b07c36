"""Decisions: pure, synchronous, without clock, I/O or logging."""
