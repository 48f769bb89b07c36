"""Parses texts of strangers in a process of their own: see `parser`."""
