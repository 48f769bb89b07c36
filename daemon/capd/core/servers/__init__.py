"""Servers: their identity, their leases, and when they may start again."""
