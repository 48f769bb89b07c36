"""The files of trust: what was agreed to, and what the files of a project hold by now."""
