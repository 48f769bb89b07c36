"""Servers: when two are one, who holds an instance, and when it may start again."""
