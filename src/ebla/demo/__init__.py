"""`python -m ebla.demo`: a shop whose views are proved; `python -m ebla.demo tables`: a tour of tables, checked."""
