"""Pre-training of a language model from nothing, masked or causal. Read ``run.py`` first.

``data.py`` reads the corpus, makes the tokenizer and blocks of tokens with their collator; ``model.py`` has the new
weights and the loss, ``settings.py`` and ``recipes/`` settings under a name.
"""
