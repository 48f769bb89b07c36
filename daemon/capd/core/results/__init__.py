"""Results that are too large to be passed on as they came (docs/design/context.md)."""
