"""Conditions on columns: what a reader asks for, and what a partial index holds."""
