"""Records of what happened: which are kept, and for how long (docs/design/operation.md)."""
