"""Which rows of a view a change touches, and what they become."""
