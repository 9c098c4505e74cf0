"""Alignment of an encoder on queries and documents. Read ``run.py`` first, then ``model.py``, the loss.

``sources.py`` finds or makes the pairs, ``reading.py`` and ``steps.py`` make batches of them, ``job.py`` trains.
"""
