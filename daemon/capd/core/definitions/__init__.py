"""Definitions of tools: cleaned, remembered, compared, and checked for known attacks."""
