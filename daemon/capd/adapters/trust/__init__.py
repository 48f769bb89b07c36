"""The files of trust: what was agreed to, and what a project's files contain now."""
