"""Taps: files become capabilities, findings, and one catalog (docs/design/catalog.md)."""
