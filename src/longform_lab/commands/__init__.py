"""Commands of the studies: one file a command, as in ``longform_text.cli``, with its ``SUMMARY``."""
