"""Trust in projects: what a project's files would start, and what a person trusts."""
