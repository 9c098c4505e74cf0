"""Singular values of attention, the theorems, k chosen by measurement."""
