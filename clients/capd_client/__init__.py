"""The near end of the socket: the `capd` command and the shim that editors start."""
