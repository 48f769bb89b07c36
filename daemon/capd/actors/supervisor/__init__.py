"""The supervisor: starts, shares and ends the instances of servers."""
