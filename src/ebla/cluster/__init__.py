"""Nodes as processes, and a whole cluster on one machine."""
