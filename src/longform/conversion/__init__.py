"""A pretrained encoder becomes a Longform: sources, key rules, positions, sentence-transformers folders, report."""
