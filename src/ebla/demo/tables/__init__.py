"""The tour of tables: what Ebla does with them, on real data, checked against plain Python."""
