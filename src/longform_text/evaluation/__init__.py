"""Scores of models."""
