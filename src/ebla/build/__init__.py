"""Online building: tasks, the coordinator that hands them out, the workers that run them, how far they have come."""
