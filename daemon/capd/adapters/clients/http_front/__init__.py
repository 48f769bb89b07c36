"""The streamable-HTTP front for clients that speak only that: off by default, loopback only."""
