"""Singular values of attention: how much the largest keep, k chosen by them, heads that attend alike.

Maps are captured on texts (``capture.py``, to be read first), measured, and drawn.
"""
