"""Sessions: what is on in a conversation, and what its client sees (docs/design/surface.md)."""
