"""The ledger's database, and the queue of notes for it."""
