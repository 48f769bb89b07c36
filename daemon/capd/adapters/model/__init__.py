"""The embedding model, pinned to the byte, and the vectors that are cached on disk."""
