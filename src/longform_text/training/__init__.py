"""Trainings: distillation, alignment, fine-tuning, and pre-training from scratch, on transformers' Trainer.

Each kind has a room whose ``run.py`` is the function behind the command: data, a collator, a loss and a recipe
(``settings.py``). ``trainer.py`` is the Trainer of all of them, ``settings.py`` how its arguments are given, ``run.py``
and ``run_folder.py`` a training from its settings to its finished folder.
"""
