"""Tools: their names, which of them are passed on, and how one is found."""
