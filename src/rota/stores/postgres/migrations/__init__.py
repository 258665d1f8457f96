"""Numbered migrations. A fresh store and a migrated one are the same: a test compares them."""
