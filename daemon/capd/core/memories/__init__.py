"""Memories: their format, and which of them a model gets and when."""
