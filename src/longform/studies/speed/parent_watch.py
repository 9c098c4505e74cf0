"""A child process that ends with its parent, also where that is killed and can tell it nothing."""

import os
import threading
import time


def end_with_parent(parent: int, *, seconds: float = 1.0) -> None:
    """End this process within ``seconds`` of its parent, whose process number is ``parent``."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(seconds)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()
