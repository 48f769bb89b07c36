"""The outside world: processes, sockets, files, the embedding model, and MCP."""
