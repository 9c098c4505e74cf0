"""The spectrum of attention: maps captured on texts, their singular values, and the k that these suggest.

Numbers alone, for ``longform convert --projected-length``; ``longform_lab.spectrum`` measures and draws them. Read
``capture.py`` first.
"""
