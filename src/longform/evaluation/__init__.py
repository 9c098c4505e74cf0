"""Measuring and using models: embeddings, classification, retrieval, perplexity, and inference over files."""
