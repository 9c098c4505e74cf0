"""The laboratory of Longform: what is measured with it, and the commands and tables that show the measurements.

``spectrum``, ``compare``, ``speed``, ``paper`` and ``demo`` are the studies; ``commands`` are their command lines,
which the program ``longform`` finds by the entry points ``longform.commands``. ``experiments`` are measurements that
are run as ``python -m longform_lab.experiments.NAME``; ``tables`` writes the tables of documents. ``records`` is what
they all append to, in ``benchmarks/records/`` of a checkout. Read ``speed/grid.py`` first. ``longform`` never imports
this package.
"""
