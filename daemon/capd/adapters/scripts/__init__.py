"""The processes that run scripts, and the saved state of a run."""
