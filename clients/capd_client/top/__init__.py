"""`capd top`: the daemon, live, in a terminal."""
