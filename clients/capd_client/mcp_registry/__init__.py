"""Servers of a public registry: added by name, and kept up to date, at the user's word."""
