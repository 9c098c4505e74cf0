"""Pre-training of a language model from nothing, masked or causal. Read ``run.py`` first.

``sources.py`` reads the corpus and makes the tokenizer, ``data.py`` and ``masking.py`` make batches, ``model.py`` the
new weights and the loss, ``settings.py`` and ``recipes/`` hold settings under a name.
"""
