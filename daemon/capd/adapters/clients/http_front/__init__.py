"""The HTTP front for clients that only speak streamable HTTP: off by default, loopback only."""
