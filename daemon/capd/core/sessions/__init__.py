"""What one conversation has, sees and is told (docs/design/surface.md)."""
