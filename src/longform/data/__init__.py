"""Text in, batches out: reading documents, grouping them by length, the bundled licence texts."""
