"""What runs in the background of a process: compaction, epochs of handlers, its row in `system.processes`."""
