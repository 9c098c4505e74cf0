"""Distillation: the original encoder teaches the converted one. Read ``run.py`` first, then ``loss.py``.

``teacher.py`` reads texts as the original does, ``crops.py`` cuts them to the lengths of each step.
"""
