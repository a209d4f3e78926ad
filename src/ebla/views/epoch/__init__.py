"""One epoch of a view: which rows a change touches, and what they become."""
