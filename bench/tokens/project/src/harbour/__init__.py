"""Berths, boats, stays and invoices of a harbour."""
