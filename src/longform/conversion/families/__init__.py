"""Families of models that can be converted. ``registry.py`` lists them; ``family.py`` says what a family tells.

Read ``bert.py`` first: a mapping of its configuration and rules for the names of its weights.
"""
