"""Clients: the public socket, a connection, and the values that a client sends."""
