"""The shop: views over tables that writers never stop changing, watched, then proved equal to recomputation."""
