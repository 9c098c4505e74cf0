"""Models side by side on one data set: a Longform, its original cut and in chunks, BM25."""
