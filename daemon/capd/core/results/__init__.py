"""Results that are too large to be passed on unchanged (docs/design/context.md)."""
