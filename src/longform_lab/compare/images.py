"""Images as sequences: one token a pixel (its grey value), or one vector a patch.

scikit-learn's digits (8 x 8, 17 grey values) come with it; CIFAR-10 is read from its binary version ("data_batch_1.bin"
... "test_batch.bin": a byte of label, 3,072 of colour), never from its pickles.
"""

from pathlib import Path

import numpy as np

from longform.errors import ConfigurationError, DataError, require
from longform_lab.compare.sequences import READS, LabelledSequences, SequenceTask

CIFAR_SIDE, CIFAR_COLOURS = 32, 3
CIFAR_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R BT.601: the grey of a colour


def digits_task(*, patch: int = 0, seed: int = 0) -> SequenceTask:
    """1,797 digits: 1,258 to train on, 180 to validate, 359 to test."""
    data = require("sklearn.datasets", extra="train").load_digits()
    images, labels = data.images.astype(np.int64), data.target.astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(labels))
    places = np.split(order, [round(0.7 * len(order)), round(0.8 * len(order))])
    return _task("digits", images, labels, places, [str(digit) for digit in range(10)], levels=17, patch=patch)


def cifar10_task(folder: str | Path, *, patch: int = 0, seed: int = 0) -> SequenceTask:
    """Grey-scale CIFAR-10: 45,000 to train on, 5,000 to validate, 10,000 to test. Raises DataError."""
    files = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    missing = [name for name in files if not (Path(folder) / name).is_file()]
    if missing:
        raise DataError(
            f'"{folder}" lacks {", ".join(missing)}: give the folder of CIFAR-10\'s binary version '
            "(cifar-10-batches-bin); its pickles are not read"
        )
    read = [_read_cifar(Path(folder) / name) for name in files]
    images, labels = np.concatenate([image for image, _ in read]), np.concatenate([label for _, label in read])
    tested = len(read[-1][1])
    order = np.random.default_rng(seed).permutation(len(labels) - tested)
    cut = round(0.9 * len(order))
    places = [order[:cut], order[cut:], np.arange(len(labels) - tested, len(labels))]
    return _task("cifar10", images, labels, places, CIFAR_NAMES, levels=256, patch=patch)


def _read_cifar(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Grey images long (N, 32, 32) and labels (N,)."""
    row = 1 + CIFAR_COLOURS * CIFAR_SIDE**2
    content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    if content.size == 0 or content.size % row:
        raise DataError(f'"{path}" has {content.size:,} bytes, not a multiple of {row:,}: it is cut short, or no CIFAR')
    rows = content.reshape(-1, row)
    if rows[:, 0].max() >= len(CIFAR_NAMES):
        raise DataError(f'"{path}" has the label {rows[:, 0].max()}; CIFAR-10 has 0 to 9')
    colours = rows[:, 1:].reshape(-1, CIFAR_COLOURS, CIFAR_SIDE, CIFAR_SIDE)
    return np.rint(np.einsum("c,nchw->nhw", LUMA, colours)).astype(np.int64), rows[:, 0].astype(np.int64)


def _task(
    name: str,
    images: np.ndarray,
    labels: np.ndarray,
    places: list[np.ndarray],
    names: list[str],
    *,
    levels: int,
    patch: int,
) -> SequenceTask:
    """``patch``: 0 for a token a pixel; P for a vector (P * P grey values from 0 to 1) a square of P x P."""
    side = images.shape[1]
    if patch < 0 or (patch and side % patch):
        raise ConfigurationError(f"patch={patch} must divide the image's side, {side} pixels; 0 is a token a pixel")
    sequences = patches(images / (levels - 1), patch) if patch else images.reshape(len(images), -1) + 1
    parts = [LabelledSequences(list(sequences[part]), labels[part], names) for part in places]
    pixels = tuple(images[part].reshape(len(part), -1) / (levels - 1) for part in places)
    return SequenceTask(
        name, *parts, vocabulary=0 if patch else levels + 1, features=patch**2, raw=pixels, reads=READS["digits"]
    )


def patches(images: np.ndarray, patch: int) -> np.ndarray:
    """Images (N, H, H) as vectors float32 (N, (H / P)², P * P), row by row."""
    count, side, _ = images.shape
    cells = images.reshape(count, side // patch, patch, side // patch, patch).transpose(0, 1, 3, 2, 4)
    return cells.reshape(count, (side // patch) ** 2, patch**2).astype(np.float32)
