"""The HTTP API of a node: requests with users and limits, carried out by an open database."""
