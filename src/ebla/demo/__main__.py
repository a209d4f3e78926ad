"""`python -m ebla.demo`."""

from ebla.demo.story import main

main()
