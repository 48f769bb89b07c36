"""The ledger, which records calls and decisions: its database, and the queue of notes for it."""
