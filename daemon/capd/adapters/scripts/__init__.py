"""The processes that run scripts, and what is written down of a run."""
