"""Trainings: distillation, alignment, fine-tuning, and pre-training from scratch.

Each kind has a room whose ``run.py`` is the function behind the command (read it first) and whose ``job.py`` says what
is learned; ``engine/`` is what they share: numbered steps, checkpoints that are whole, processes, the folder of a run.
"""
