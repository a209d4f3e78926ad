"""A cluster that changes its shape and loses processes while it is written to: `python -m ebla.demo cluster`."""
