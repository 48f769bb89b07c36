"""Definitions of tools: cleaned, saved, compared, and checked for known attacks."""
