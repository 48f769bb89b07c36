"""The curator: one mailbox for all sessions, and the parts of one session."""
