"""`capd top`: a live view of the daemon in a terminal."""
