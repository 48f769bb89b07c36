"""Records of what happened: what is kept, and for how long (docs/design/operation.md)."""
