"""Run files and what is kept of them in memory."""
