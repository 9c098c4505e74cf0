import numpy as np
import pytest

from longform.errors import ConfigurationError, DataError
from longform_lab.compare.images import cifar10_task, digits_task, patches


def test_digits_are_value_tokens_with_zero_left_for_padding():
    task = digits_task(seed=1)
    assert (task.vocabulary, task.features, task.longest) == (18, 0, 64)
    assert [len(part.labels) for part in (task.train, task.validation, task.test)] == [1258, 180, 359]
    values = np.concatenate(task.train.sequences)
    assert (values.min(), values.max()) == (1, 17)
    assert task.digest() == digits_task(seed=1).digest() != digits_task(seed=2).digest()


def test_patches_are_squares_of_neighbours_row_by_row():
    image = np.arange(16).reshape(1, 4, 4)
    assert patches(image, 2).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]]
    task = digits_task(patch=4)
    assert (task.vocabulary, task.features, task.longest) == (0, 16, 4)
    with pytest.raises(ConfigurationError, match="patch=3 must divide"):
        digits_task(patch=3)


def cifar(folder, texts=20):
    rng = np.random.default_rng(0)
    for name in [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]:
        rows = rng.integers(0, 256, (texts, 3073), dtype=np.uint8)
        rows[:, 0] %= 10
        (folder / name).write_bytes(rows.tobytes())
    return folder


def test_cifar_is_read_from_its_binary_version_as_grey(tmp_path):
    folder = cifar(tmp_path)
    task = cifar10_task(folder)
    assert [len(part.labels) for part in (task.train, task.validation, task.test)] == [90, 10, 20]
    content = np.frombuffer((folder / "test_batch.bin").read_bytes(), dtype=np.uint8)
    red, green, blue = (int(content[at]) for at in (1, 1025, 2049))
    assert task.test.labels[0] == content[0]
    assert task.test.sequences[0][0] == round(0.299 * red + 0.587 * green + 0.114 * blue) + 1
    assert task.longest == 1024


def test_damaged_and_missing_cifar_say_so(tmp_path):
    with pytest.raises(DataError, match=r"lacks data_batch_1.bin.*binary version"):
        cifar10_task(tmp_path)
    cifar(tmp_path, texts=2)
    (tmp_path / "data_batch_3.bin").write_bytes(b"x" * 3072)
    with pytest.raises(DataError, match=r"3,072 bytes, not a multiple"):
        cifar10_task(tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(b"\xff" * 3073)
    with pytest.raises(DataError, match="the label 255"):
        cifar10_task(tmp_path)
