"""What all packages stand on: ids, settings, issues, pauses, caches, failpoints, lazy imports, rights of files."""
