"""Counts tokens as a large model does, with its vocabulary."""
