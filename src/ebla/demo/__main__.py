"""`python -m ebla.demo [shop | tables] [options]`. The shop is what runs without a word."""

import sys

from ebla.demo.shop import run
from ebla.demo.tables import story

match sys.argv[1:]:
    case ["tables", *rest]:
        sys.exit(story.main(rest))
    case ["shop", *rest] | [*rest]:
        sys.exit(run.main(rest))
