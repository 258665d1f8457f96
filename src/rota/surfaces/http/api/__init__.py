"""The HTTP API: the endpoints of the operations, and those that are written by hand."""
