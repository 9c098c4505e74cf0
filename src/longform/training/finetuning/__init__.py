"""Fine-tuning on labelled texts. Read ``run.py`` first.

``labels.py`` finds out what is to be learned, ``job.py`` makes batches and the loss.
"""
