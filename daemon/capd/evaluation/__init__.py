"""How good the decisions are, on data: `capd eval`."""
