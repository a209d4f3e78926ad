"""Handlers as jobs: which views are kept together, and what runs in the background."""
