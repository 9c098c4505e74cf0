"""Alignment of an encoder on queries and documents. Read ``run.py`` first, then ``model.py``, the loss.

``sources.py`` finds or makes the pairs, ``steps.py`` makes batches of them, ``adapter.py`` has what may learn in place
of the weights.
"""
