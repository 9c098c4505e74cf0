"""A pretrained encoder becomes a Longform."""
