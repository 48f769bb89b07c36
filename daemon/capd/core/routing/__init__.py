"""From a message to a decision (20-routing)."""
