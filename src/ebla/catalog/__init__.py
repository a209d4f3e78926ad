"""One transactional database in which everything is decided."""
