"""Trust on disk: what a person trusts, and what a project's files contain now."""
