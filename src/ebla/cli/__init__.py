"""The command `ebla`."""
