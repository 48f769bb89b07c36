"""The outside world: processes, sockets, files, the model, MCP."""
