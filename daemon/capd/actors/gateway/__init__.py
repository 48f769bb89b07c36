"""The gateway: accepts connections on the socket and on the HTTP front."""
