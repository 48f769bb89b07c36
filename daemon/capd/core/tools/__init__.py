"""Tools: their names, which are passed on, and how one is found."""
