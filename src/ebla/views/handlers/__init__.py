"""Epochs of the views of a handler, each at its turn; changes of dictionaries."""
