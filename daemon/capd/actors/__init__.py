"""One file per actor: a message in, a decision of the core, its effects out."""
