"""Servers: how they are identified, shared, started and confined, and when they start again."""
