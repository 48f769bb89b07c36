"""Downstream servers: their processes, their environment, the server connection to each."""
