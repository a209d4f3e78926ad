"""`python -m ebla` is the command `ebla`."""

from ebla.cli.main import main

main()
