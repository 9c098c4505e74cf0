"""Commands of the studies: one file a command, as in ``longform.cli``, with its ``SUMMARY``."""
