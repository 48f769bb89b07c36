"""Results that are too large to be passed on as they came (50-results)."""
