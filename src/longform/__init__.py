"""Linear-time Transformer encoders for long documents."""
