"""The parts that all trainings share. Read ``job.py`` first: what a training is; then ``trainer.py``, which runs one.

``settings.py`` checks what a user asks for, ``students.py`` opens and saves the model, ``run_folder.py`` and
``checkpoints.py`` keep what a killed run goes on from, ``records.py`` shows how it went.
"""
