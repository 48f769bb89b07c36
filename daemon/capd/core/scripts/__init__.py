"""Scripts: many tool calls in one request (docs/scripts.md)."""
