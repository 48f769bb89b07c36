"""The servers: their processes, their environment, and the connection to each."""
