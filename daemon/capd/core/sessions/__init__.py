"""What one conversation has, sees and is told (30-activation)."""
