"""`capd import`: turns the servers in clients' configurations into the user's own capabilities."""
