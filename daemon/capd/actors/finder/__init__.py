"""The finder: searches every known tool and skill, without running a server."""
