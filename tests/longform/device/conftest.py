"""Tests on a GPU (LONGFORM_TEST_DEVICE=1), collected where torch sees one; every other test hides it."""

import torch

collect_ignore_glob = [] if torch.cuda.is_available() else ["test_*.py"]
