"""From a message to a decision (docs/design/routing.md)."""
