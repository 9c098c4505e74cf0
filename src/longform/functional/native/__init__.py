"""Compiled kernels: their library, what is asked of them, their C."""
