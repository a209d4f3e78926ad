"""SQL without Spark: statements as values, table references in queries, and writes as queries."""
