"""What all packages stand on: identifiers, settings, issues, pauses, failpoints, lazy imports, rights of files."""
