"""The ledger's file, and the way of a note into it."""
