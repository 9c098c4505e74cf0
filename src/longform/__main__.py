"""``python -m longform``: the command line, also for torchrun, which starts modules."""

import sys

from longform.cli.main import main

if __name__ == "__main__":  # not in the processes that multiprocessing starts, which import this again
    sys.exit(main())
