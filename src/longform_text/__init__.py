"""Texts for Longform's encoders: readers, inference, search, training, serving, export and the command line."""
