"""Parses other people's texts in a process of its own: see `parser`."""
