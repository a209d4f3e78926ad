"""Relations, runs, snapshots, changes, tasks and states as values. Nothing here reads or writes anything."""
