"""Bridges: editors on another host or in a container (the far side) use this user's daemon."""
