"""Clients: the public socket, a connection, what its client sent along."""
