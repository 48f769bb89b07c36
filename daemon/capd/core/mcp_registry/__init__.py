"""Servers of a public registry: parsing an entry, starting it, finding it."""
