"""Benchmarks: each a ratio of two things measured in one run, on the same data, in the same Spark session."""
