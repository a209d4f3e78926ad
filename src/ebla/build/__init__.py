"""Online building: the coordinator that hands out tasks, and the workers and engines that run them."""
