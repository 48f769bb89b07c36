"""The index: a short text on each capability, written when the catalog changes."""
