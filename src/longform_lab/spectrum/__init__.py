"""Singular values of attention: how much the largest keep, k chosen by them, heads that attend alike."""
