"""Types of columns, and how texts, JSON and Python objects become values of them."""
