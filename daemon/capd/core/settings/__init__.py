"""Settings: their layers, and which keys a project's file may set."""
