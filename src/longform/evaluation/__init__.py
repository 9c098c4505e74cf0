"""Scores of models, and models side by side on one data set."""
