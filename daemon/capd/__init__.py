"""capd, the per-user capability daemon: a daemon of actors around pure rules."""

__version__ = "0.1.0"
