"""Trainings: distillation, alignment, fine-tuning, and pre-training from scratch.

Each kind has a room whose ``run.py`` is the function behind the command (read it first) and whose ``job.py`` says what
is learned (of a pre-training ``run.py`` too); ``engine/`` is what they share: the loop, checkpoints, the run's folder.
"""
