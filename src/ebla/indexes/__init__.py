"""Secondary indexes: who maintains them, how they are filled, and whether they are right."""
