"""Search of folders of documents: readers of their files, an index on the disk, and passages ranked for a question."""
