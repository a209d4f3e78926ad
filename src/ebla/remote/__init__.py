"""The client of a cluster's nodes: the same calls over HTTP, without Spark and without Java."""
