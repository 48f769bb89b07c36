"""Sessions: what one conversation has, sees and receives (docs/design/surface.md)."""
