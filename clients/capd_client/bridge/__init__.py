"""Bridges: editors of another host or a container use this user's daemon."""
