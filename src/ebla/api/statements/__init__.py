"""Statements about views, indexes and handlers, carried out."""
