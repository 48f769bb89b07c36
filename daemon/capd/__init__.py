"""capd, the per-user capability daemon: actors that act, around pure rules that decide."""

__version__ = "0.1.0"
