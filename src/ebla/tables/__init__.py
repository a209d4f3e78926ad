"""What is done with a relation: writing, reading, changing its shape, keeping its files in order."""
