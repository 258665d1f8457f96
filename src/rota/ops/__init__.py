"""Work on a store as a whole."""
