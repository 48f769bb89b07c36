"""Texts that strangers wrote, read in a process of their own: see `parser`."""
