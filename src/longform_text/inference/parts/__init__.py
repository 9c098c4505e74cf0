"""Folders of files embedded or predicted in parts, on one machine or a Ray cluster. Read ``run.py`` first: the driver.

``worker.py`` makes a part, ``output.py`` keeps the manifest of those that are there, ``ray_engine.py`` runs workers.
"""
