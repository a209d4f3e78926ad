"""First-100 queries: filter, sort, first rows, from sorted runs and without a Spark job."""
