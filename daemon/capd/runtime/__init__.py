"""Mailboxes and supervision; nothing here knows MCP."""
