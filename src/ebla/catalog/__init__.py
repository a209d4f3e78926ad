"""See docs/internals."""
