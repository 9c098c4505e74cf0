"""Documents in, token batches out: reading, tokenising, grouping by length, packing; and the bundled licence texts."""
