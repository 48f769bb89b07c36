"""The actors: each receives messages, asks the core to decide, and carries out the effects."""
