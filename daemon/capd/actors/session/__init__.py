"""The curator, the actor that owns all sessions: its mailbox, and the parts of one session.

What is *on* in a session (its capabilities and single tools) can be called. Its *list* (or surface)
is the tools that its client is shown. A *turn* is one message of the user, and what it changes.
"""
