"""Positions of tokens: tables of them for another length, distances that a bias counts, and rotations."""
