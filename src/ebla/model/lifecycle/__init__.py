"""Life cycles as tables: one file for each thing that has states.

Each file opens with an essay, then has the states, who may read and who maintains in each, and every step as one row:
from, to, who takes it, what it requires, what it does. The code that takes a step asks the table, which refuses a step
that it does not have. The diagrams in the documentation and `EXPLAIN` are drawn from the same rows.
"""
