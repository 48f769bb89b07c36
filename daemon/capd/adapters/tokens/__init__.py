"""Tokens of a large model, counted with its own vocabulary."""
