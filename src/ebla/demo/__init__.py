"""`python -m ebla.demo`: what Ebla does, shown on real data and checked against plain Python."""
