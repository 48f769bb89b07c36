"""Downstream servers: their processes, their environment, the lane to each."""
