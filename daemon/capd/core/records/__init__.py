"""What is kept of what happened, and for how long (docs/design/operation.md)."""
