"""`capd import`: the servers that clients are configured with become capabilities of one's own."""
