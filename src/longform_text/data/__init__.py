"""Documents in, token batches out: reading, tokenising, grouping by length, packing."""
