"""Secondary indexes: what they are made of, who maintains them, how they come to be, and whether they are right."""
