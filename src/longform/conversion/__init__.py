"""Conversion of pretrained encoders to Longforms."""
