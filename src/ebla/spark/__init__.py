"""DataFrames: sessions, scans, writes, and what Spark says when it fails."""
