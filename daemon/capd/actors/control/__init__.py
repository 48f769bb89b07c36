"""The control role of a connection: what `capd` and prompt hooks ask the daemon."""
