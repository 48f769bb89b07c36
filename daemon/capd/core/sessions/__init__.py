"""Sessions: what is switched on in a conversation, and what its client sees.

The rules are described in docs/design/surface.md.
"""
