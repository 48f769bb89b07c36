"""The client side: the public socket, connections, and the values that clients send."""
