"""Measures the quality of routing and search on labelled data: `capd eval`."""
