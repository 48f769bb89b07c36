"""The control role of a connection: what `capd` and hooks ask of the daemon."""
