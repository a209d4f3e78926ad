"""Ebla as a Spark data source: `format("ebla")`."""
