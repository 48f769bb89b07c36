"""Measures the quality of decisions on data: `capd eval`."""
