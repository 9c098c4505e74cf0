"""Measurements that are made for each release, run as ``python -m longform_lab.experiments.NAME``."""
