"""Views kept exact: epochs, fills, handlers."""
