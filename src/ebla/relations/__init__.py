"""What a view, an index and a handler are, how far each one is, and what depends on it: read only."""
