"""Servers of a public registry: what an entry says, how it is started, how it is found."""
