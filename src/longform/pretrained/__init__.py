"""Checkpoints as they are: weights, adapters, tokenizers, and the folders of sentence-transformers."""
