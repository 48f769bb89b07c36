"""The finder: searches every known tool and skill, with no server running."""
