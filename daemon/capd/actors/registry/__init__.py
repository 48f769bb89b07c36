"""The registry: taps, the catalog, routing decisions, and trust in projects."""
