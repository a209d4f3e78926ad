"""A view is filled while it is built, and a sample of it is checked before it is read."""
