"""Where bars that nobody asked for are seen: on a terminal and in a notebook; a log would have a line a state."""

import sys


def hidden(shown: bool) -> bool:
    """Whether a bar is not drawn, tqdm's ``disable``: it is not to be ``shown``, or nobody would see it."""
    seen = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    return not (shown and seen)
