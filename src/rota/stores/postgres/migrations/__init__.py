"""Numbered migrations. A step only adds: processes of the version before it go on with what they know (docs/operations/postgresql.md)."""
