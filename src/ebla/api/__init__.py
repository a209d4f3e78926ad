"""The way in from Python: `Database`, `Table`, and statements carried out."""
