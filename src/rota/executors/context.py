"""What a handler sees of its own job."""
