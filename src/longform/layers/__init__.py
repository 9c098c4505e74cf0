"""Modules with plain keyword arguments; they hold parameters and call the functions."""
