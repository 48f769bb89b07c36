"""Servers from a public registry: added by name, and updated when the user asks."""
