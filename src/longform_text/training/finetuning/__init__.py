"""Fine-tuning on labelled texts. Read ``run.py`` first.

``job.py`` makes batches and the loss; ``training/labels.py``, which the laboratory asks too, finds out what is learned.
"""
