"""What ``longform compare`` is asked for: a task, a scale, and changes to it -> data, sizes and budget."""

from typing import Any, NamedTuple

from longform.errors import ConfigurationError
from longform.studies.compare.images import cifar10_task, digits_task
from longform.studies.compare.learning import LearningSettings
from longform.studies.compare.listops import SYMBOLS, ListOpsShape, listops
from longform.studies.compare.scales import Scale, scale
from longform.studies.compare.sequences import READS, SequenceTask
from longform.studies.compare.sizes import Sizes
from longform.studies.compare.texts import text_task


class Opened(NamedTuple):
    """The data and how it is learned."""

    task: SequenceTask
    sizes: Sizes
    learning: LearningSettings


def open_task(
    task: str, scale_name: str = "small", *, data: str | None = None, text_field: str = "text",
    label_field: str = "label", pair_field: str | None = None, vocabulary: int | None = None,
    length: int | None = None, pooling: str | None = None, projection_init: str | None = None,
    test_texts: int | None = None, patch: int = 0, seed: int = 0, progress: bool = True, **learning: Any,
) -> Opened:  # fmt: skip
    """Open ``task`` ("text", "listops", "digits", "cifar10") at a scale ("small", "paper").

    ``data``: file of the texts, or folder of CIFAR-10. ``length``: tokens of the longest text. ``vocabulary``: tokens
    that are learned from texts at most. ``pooling``, ``projection_init``: of Sizes. ``test_texts``: ListOps texts
    to test on, of which the first are the same whatever their number is. ``learning``: fields of LearningSettings.
    None: the scale's.
    Raises ConfigurationError and DataError.
    """
    if length is not None and length < 3:
        raise ConfigurationError(f"--length {length}: a text has 3 tokens or more, with those at its ends")
    chosen = scale(
        task, scale_name, length=length, pooling=pooling, projection_init=projection_init, test_texts=test_texts,
        seed=seed, **learning,
    )  # fmt: skip
    if task in ("text", "cifar10") and data is None:
        raise ConfigurationError(f'the task "{task}" needs data: --data with a file of texts or the folder of CIFAR-10')
    if task in ("listops", "digits") and data is not None:
        raise ConfigurationError(f'the task "{task}" makes its own data: leave --data out, or choose --task text')
    named = text_field != "text" or label_field != "label" or pair_field is not None
    if task != "text" and (named or vocabulary is not None):
        raise ConfigurationError(f'--vocabulary and the names of fields are for --task text, and this is "{task}"')
    if task in ("text", "listops") and patch:
        raise ConfigurationError(f'--patch is for images, and this is "{task}"')
    if task in ("digits", "cifar10") and length is not None:
        raise ConfigurationError(f'--length is for texts, and this is "{task}": --patch makes images shorter')
    if test_texts is not None:
        if task != "listops":
            raise ConfigurationError(f'--test-texts is for listops, whose texts are made, and this is "{task}"')
        if test_texts < 1:
            raise ConfigurationError(f"--test-texts {test_texts} must be at least 1")
    if task == "listops":
        opened = _listops(chosen, seed, progress=progress)
    elif task == "digits":
        opened = digits_task(patch=patch, seed=seed)
    elif task == "cifar10":
        opened = cifar10_task(data or "", patch=patch, seed=seed)
    else:
        opened = text_task(
            data or "", text_field=text_field, label_field=label_field, pair_field=pair_field,
            length=chosen.sizes["length"], seed=seed,
            vocabulary=chosen.data["vocabulary"] if vocabulary is None else vocabulary,
        )  # fmt: skip
    length = chosen.sizes["length"] if task in ("text", "listops") else opened.longest
    slots = min(chosen.sizes["projected_length"], length)
    sizes: dict[str, Any] = {**chosen.sizes, "length": length, "projected_length": slots}
    found = Sizes(vocabulary=opened.vocabulary, features=opened.features, labels=len(opened.train.names), **sizes)
    return Opened(opened, found, chosen.learning)


def _listops(chosen: Scale, seed: int, *, progress: bool) -> SequenceTask:
    length = chosen.sizes["length"]
    shape = ListOpsShape(min_length=min(chosen.data["min_length"], max(1, length // 4)), max_length=length)
    parts = [
        listops(count, shape, seed=seed, part=part, progress=progress)
        for part, count in zip(("train", "validation", "test"), chosen.examples, strict=True)
    ]
    train, validation, test = ([SYMBOLS[sequence[0]] for sequence in part.sequences] for part in parts)
    return SequenceTask(
        f"ListOps, {shape.min_length} to {length} symbols", *parts, vocabulary=len(SYMBOLS),
        raw=(train, validation, test), reads=READS["listops"],
    )  # fmt: skip
