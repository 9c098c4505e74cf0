"""Models side by side on one data set: a Longform, its original cut where it ends, and that averaged over chunks.

Retrieval is in ``longform_lab.evaluation.retrieval_comparison``.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from longform.errors import ConfigurationError, DataError
from longform_text.data.given import as_rows, source_of
from longform_text.data.progress import hidden
from longform_text.data.records import Record, field, records_of, string_field
from longform_text.data.text import read_documents
from longform_text.evaluation.classification import classification_scores, multi_label_scores, regression_scores
from longform_text.evaluation.embeddings import cosines, spearman
from longform_text.inference.classifiers import MULTI_LABEL, REGRESSION, Classifier, FineTuning, of_source
from longform_text.inference.encoders import Encoder
from longform_text.inference.loading import position_limit, token_limit
from longform_text.inference.settings import DEFAULT_BATCH_TOKENS
from longform_text.inference.strategies import Collected, TextModel
from longform_text.training.labels import lists_of_names, plain_labels


@dataclass(frozen=True)
class Contender:
    """A model and the way it takes long texts. ``max_length``: tokens, None for all that fit."""

    name: str
    model: str
    strategy: str
    max_length: int | None = None


@dataclass(frozen=True)
class RunSettings:
    """How every contender is run; lengths in tokens."""

    batch_tokens: int = DEFAULT_BATCH_TOKENS
    overlap: int = 0
    dtype: str = "float32"
    device: str = "auto"
    progress: bool = True


def contenders(
    *, longform: str | None, original: str | None, max_length: int | None = None, original_length: int | None = None
) -> list[Contender]:
    """The Longform on whole texts; the original cut, and in chunks. Raises ConfigurationError when both are None."""
    listed = []
    if longform is not None:
        listed.append(Contender("longform", longform, "whole", max_length))
    if original is not None:
        listed.append(Contender("original, cut", original, "cut", original_length))
        listed.append(Contender("original, chunks averaged", original, "chunk-average", original_length))
    if not listed:
        raise ConfigurationError("nothing to evaluate: give longform, original, or both")
    return listed


def compare_similarity(
    models: Sequence[Contender],
    data: Any,
    settings: RunSettings,
    *,
    fields: Sequence[str] = ("sentence1", "sentence2", "score"),
) -> list[dict[str, Any]]:
    """STS: Spearman x 100 between cosines and judgements; ``fields``: first text, second text, score."""
    if len(fields) != 3:
        raise ConfigurationError(f"fields names {len(fields)} fields; it is first text, second text, score")
    rows = list(records_of(data, *fields))
    first, second = ([string_field(row, name) for row in rows] for name in fields[:2])
    truth = [_float(field(row, fields[2]), f'{row.location}: the field "{fields[2]}": ') for row in rows]

    def measure(model: Contender) -> dict[str, Any]:
        encoder = encoder_of(model, settings)
        result = encoder.collect([*first, *second], **run_options(model, settings))
        one, other = result.values[: len(rows)], result.values[len(rows) :]
        return {"spearman": 100 * spearman(cosines(one, other), truth), **seen(model, encoder, result)}

    return side_by_side(models, "sts", len(rows), measure)


def compare_classification(
    models: Sequence[Contender],
    data: Any,
    settings: RunSettings,
    *,
    text_field: str | None = None,
    label_field: str | None = None,
    pair_field: str | None = None,
) -> list[dict[str, Any]]:
    """Scores of fine-tuned models by their problem type; pairs are not run in chunks.

    None of a field: that which the first model was fine-tuned with that says so, else "text", "label", and no pairs.
    """
    source, known = next(
        ((model.model, found) for model in models if (found := of_source(model.model)).task), ("", FineTuning())
    )
    fields = known.fields(source, text_field=text_field, label_field=label_field, pair_field=pair_field)
    label_field, pair_field = fields.pop("label_field"), fields["pair_field"]
    source = source_of(as_rows(data, fields["text_field"], label_field, pair_field))
    documents = list(read_documents(source, **fields))
    labels = plain_labels(field(Record(document.id, document.fields), label_field) for document in documents)

    def measure(model: Contender) -> dict[str, Any]:
        classifier = Classifier.from_pretrained(model.model, **loading(model, settings))
        result = classifier.collect(documents, **run_options(model, settings))
        return {**_label_scores(classifier, result.values, labels), **seen(model, classifier, result)}

    kept = [model for model in models if pair_field is None or model.strategy != "chunk-average"]
    return side_by_side(kept, "classification", len(documents), measure)


def side_by_side(
    models: Sequence[Contender], task: str, texts: int, measure: Callable[[Contender], dict[str, Any]]
) -> list[dict[str, Any]]:
    """A record a contender: what it is, its scores by ``measure``, and the seconds that these took."""
    records = []
    for model in models:
        started = time.perf_counter()
        scores = measure(model)
        seconds = time.perf_counter() - started
        about = {"task": task, **asdict(model), "reads": scores["reads"], "items": texts}
        records.append(about | scores | {"seconds": seconds})
    return records


def encoder_of(model: Contender, settings: RunSettings) -> Encoder:
    """The contender's encoder, loaded; where no length is given it reads all that it has positions for.

    A sentence-transformers folder may ask for fewer tokens than that, which would be a handicap here.
    """
    encoder = Encoder.from_pretrained(model.model, **loading(model, settings))
    most = max(encoder.limit, token_limit(encoder.model, encoder.tokenizer))
    return encoder if model.max_length else replace(encoder, limit=most)


def loading(model: Contender, settings: RunSettings) -> dict[str, Any]:
    """Options of loading it."""
    return {"max_length": model.max_length, "dtype": settings.dtype, "device": settings.device}


def run_options(model: Contender, settings: RunSettings) -> dict[str, Any]:
    """Options of ``run_texts`` and ``collect``."""
    return {
        "strategy": model.strategy,
        "overlap": settings.overlap if model.strategy == "chunk-average" else 0,
        "max_tokens_per_batch": settings.batch_tokens,
        "progress": not hidden(settings.progress),
    }


def seen(model: Contender, run: TextModel, result: Collected) -> dict[str, Any]:
    """The part of a text that a contender ``reads``, in words, the tokens that it reads at once and saw in all, and the
    texts of which it did not see all.

    Where the model has positions for more tokens than it reads, the words say so.
    """
    limit, most = run.limit, position_limit(run.model.config)
    part = f"chunks of {limit:,} tokens" if model.strategy == "chunk-average" else f"first {limit:,} tokens"
    reads = part if limit >= most else f"{part} (it takes {most:,})"
    return {"reads": reads, "max_length": limit, "tokens": result.tokens, "truncated": result.truncated}


def _label_scores(classifier: Classifier, logits: np.ndarray, labels: Sequence[Any]) -> dict[str, Any]:
    if classifier.problem_type == REGRESSION:
        return asdict(regression_scores(logits, np.array([_float(label) for label in labels])))
    if classifier.problem_type == MULTI_LABEL:
        return asdict(multi_label_scores(logits, _indicators(labels, classifier.label2id)))
    return asdict(classification_scores(logits, label_ids(labels, classifier.label2id), classifier.labels))


def label_ids(labels: Sequence[Any], label2id: Mapping[str, int]) -> np.ndarray:
    """Names, or ids from 0, as long (N,). Raises DataError for mixed types and for labels the model does not know."""
    kinds = sorted({type(label).__name__ for label in labels})
    if len(kinds) > 1:
        examples = {type(label).__name__: label for label in labels}
        raise DataError(f"labels of mixed types ({', '.join(kinds)}), such as {examples}: use names or integers only")
    numbered = any(name.removeprefix("-").isdecimal() for name in label2id)  # then a number is a name, not a place
    known = {**({} if numbered else {str(place): place for place in label2id.values()}), **label2id}
    unseen = sorted({str(label) for label in labels} - known.keys())
    if unseen:
        raise DataError(
            f"the model has no label {', '.join(map(repr, unseen[:5]))} (unseen in training); it has: "
            f"{', '.join(sorted(label2id))}"
        )
    return np.array([known[str(label)] for label in labels], dtype=np.int64)


def _indicators(labels: Sequence[Any], label2id: dict[str, int]) -> np.ndarray:
    """0/1 (N, L) of lists of names."""
    truth = np.zeros((len(labels), len(label2id)), dtype=np.int64)
    for row, names in enumerate(lists_of_names(labels)):
        if not isinstance(names, list):
            raise DataError(f"row {row}: the labels of a multi-label model are a list of names, not {names!r}")
        truth[row, label_ids(names, label2id)] = 1
    return truth


def _float(value: Any, where: str = "") -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}{value!r} is not a number") from error


DRAWS = 10_000
AT_A_TIME = 1_000_000  # drawn items in memory
OUTSIDE = (2.5, 97.5)  # percentiles: 95 % lie between


class Interval(NamedTuple):
    """A mean, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def signed(self) -> str:
        """As a difference is written: "+1.2 (-0.3 to +2.6)"."""
        return f"{self.mean:+.1f} ({self.low:+.1f} to {self.high:+.1f})"


def bootstrap(values: np.ndarray, *, seed: int = 0) -> Interval:
    """The mean of ``values`` (N,) and its 95 % interval, by 10,000 draws of N items (percentiles).

    Of the differences between two contenders item by item this is the paired bootstrap: what makes an item hard for
    both does not widen it.
    """
    generator = np.random.default_rng(seed)
    together = min(DRAWS, max(1, AT_A_TIME // len(values)))
    means = [
        values[generator.integers(len(values), size=(min(together, DRAWS - first), len(values)))].mean(axis=1)
        for first in range(0, DRAWS, together)
    ]
    low, high = np.percentile(np.concatenate(means), OUTSIDE)
    return Interval(float(values.mean()), float(low), float(high))


def difference_of(one: Sequence[float], other: Sequence[float]) -> Interval:
    """How much better ``one`` is than ``other``, item by item: the paired bootstrap."""
    return bootstrap(np.array(one) - np.array(other))
