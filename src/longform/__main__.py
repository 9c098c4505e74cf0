"""``python -m longform``: the command line, also for torchrun, which starts modules."""

import sys
from importlib import import_module

if __name__ == "__main__":  # not in the processes that multiprocessing starts, which import this again
    sys.exit(import_module("longform_text.cli.main").main())
