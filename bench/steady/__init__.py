"""A steady load: writers, epochs, compaction and a reader on one machine, with default settings, for minutes or hours.

TPC-H with a five-way join view, an aggregate view and an index on the first. Writers change random rows of lineitem at
a fixed rate, in commits of a fixed size; one reader asks for the first 100 rows by the index, again and again. Nothing
is compacted or flushed by hand.

Measured are the rate that was held, the time from a commit to the moment at which both views show it, the time of
queries, and over time the memory of Python and of the JVM, level 0, files and the catalog's size.
"""
