"""The index: a short text on each capability, made when the catalog changes."""
