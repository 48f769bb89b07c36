"""Taps: texts of files become capabilities, findings, and one catalog (10-catalog)."""
