"""Adapters that carry messages outside. Each is imported when it is used."""
