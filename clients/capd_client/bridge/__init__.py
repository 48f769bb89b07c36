"""Bridges: editors on another host or in a container use this user's daemon."""
