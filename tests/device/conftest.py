"""Tests on a GPU: `make test-device`. Collected where torch sees one; every other test hides it."""

import torch

collect_ignore_glob = [] if torch.cuda.is_available() else ["test_*.py"]
