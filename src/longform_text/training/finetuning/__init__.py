"""Fine-tuning on labelled texts. Read ``run.py`` first.

``task.py``: texts with one label, several, or a number; ``tokens.py``: texts with a label a word.
``training/labels.py``, which the laboratory asks too, finds out what is learned.
"""
