"""A server over the inference engine: ``longform serve``.

Its modules import FastAPI and what belongs to it (extra ``serve``) at their top: only ``cli/serve.py`` and tests import
them, after ``longform.errors.require``.
"""
