"""`python -m ebla.demo [shop | tables | cluster] [options]`. The shop is what runs without a word."""

import sys

from ebla.demo.cluster import run as cluster
from ebla.demo.shop import run
from ebla.demo.tables import story

match sys.argv[1:]:
    case ["tables", *rest]:
        sys.exit(story.main(rest))
    case ["cluster", *rest]:
        sys.exit(cluster.main(rest))
    case ["shop", *rest] | [*rest]:
        sys.exit(run.main(rest))
