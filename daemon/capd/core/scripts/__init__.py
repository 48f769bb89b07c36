"""Scripts: many calls of tools in one request (docs/scripts.md)."""
