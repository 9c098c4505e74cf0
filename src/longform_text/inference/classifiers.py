"""Sequence classifiers run over texts, with the length and fields that their fine-tuning recorded in the config.

Axes: B texts of a batch, N texts, L labels.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from torch import Tensor
from transformers import AutoModelForSequenceClassification
from transformers.configuration_utils import PreTrainedConfig

from longform.errors import ConfigurationError, DataError
from longform_text.data.batching import Batch
from longform_text.data.text import Document, Text, written
from longform_text.inference.loading import checked_limit, load_pretrained, token_limit
from longform_text.inference.settings import DEFAULT_BATCH_TOKENS
from longform_text.inference.strategies import Outcome, TextModel

FIELD = "fine_tuning"  # of the config
TEXTS = ("task", "label_type", "text_field", "label_field", "pair_field")
KINDS = {"max_length": int, "pairs": bool} | dict.fromkeys(TEXTS, str)
USUAL = {"text_field": "text", "label_field": "label", "pair_field": None}


class FineTuning(NamedTuple):
    """``max_length``: tokens at which texts were cut; ``pairs``: texts came in pairs; fields: None for texts in memory.

    ``task``: "single-label", "multi-label", "regression" or "token-classification"; ``label_type``: that of its labels
    in Python, "str", "int", "float" or "bool". All None: nothing is known.
    """

    task: str | None = None
    label_type: str | None = None
    max_length: int | None = None
    pairs: bool | None = None
    text_field: str | None = None
    label_field: str | None = None
    pair_field: str | None = None

    def fields(self, source: str | Path, **given: str | None) -> dict[str, Any]:
        """Each field that is given, else the one of fine-tuning, else the usual one; a warning says which differ."""
        own = {name: value for name, value in self._asdict().items() if value is not None}
        asked = {name: value for name, value in given.items() if value is not None}
        self.warn(source, **asked)
        return {name: asked.get(name, own.get(name, USUAL[name])) for name in given}

    def warn(self, source: str | Path, **given: Any) -> None:
        """Warn where what is ``given`` is not what the model was fine-tuned with."""
        other = [name for name, value in given.items() if getattr(self, name) not in (None, value)]
        if other:
            said = (", ".join(f"{name}={values[name]!r}" for name in other) for values in (self._asdict(), given))
            warnings.warn(f'"{source}" was fine-tuned with {" and is run here with ".join(said)}', stacklevel=3)


def of_config(config: Any) -> FineTuning:
    """Record in a config (an object, or its fields); a value of another kind, as of an edited file, says nothing."""
    found = config.get(FIELD) if isinstance(config, dict) else getattr(config, FIELD, None)
    known = found if isinstance(found, dict) else {}
    return FineTuning(**{name: known[name] for name in FineTuning._fields if type(known.get(name)) is KINDS[name]})


def of_source(source: str | Path) -> FineTuning:
    """Record in the config of a folder or hub name."""
    try:
        return of_config(PreTrainedConfig.get_config_dict(source)[0])
    except (OSError, ValueError):  # a wrong name: loading the model says so
        return FineTuning()


def labels_tokens(source: str | Path) -> bool:
    """Whether a folder or hub name holds a token classifier."""
    try:
        named = PreTrainedConfig.get_config_dict(source)[0].get("architectures") or [""]
    except (OSError, ValueError):  # a wrong name: loading the model says so
        return False
    return str(named[0]).endswith("ForTokenClassification")


SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
TYPES: dict[str | None, Any] = {"int": int, "float": float, "bool": {"True": True, "False": False}.__getitem__}


@dataclass(repr=False, eq=False)
class Classifier(TextModel):
    """A sequence classifier (or regressor) for use, with its tokenizer: the numbers of a text are logits (L).

    One that was fine-tuned on pairs of texts raises DataError for a single one.
    """

    verb = "classify"

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        max_length: int | None = None,
        dtype: str = "float32",
        device: str = "auto",
        compile: bool = False,
        backend: str = "torch",
        graphs: bool = True,
    ) -> Self:
        """A classifier of a folder or hub name. Raises CheckpointError when its head was never trained.

        ``max_length``: tokens of a text, None for what the model was fine-tuned with, else all that fit; a warning says
        where it is another than in fine-tuning. ``dtype``, ``device``, ``compile``, ``backend`` and
        ``graphs`` as for an Encoder.
        """
        how: Any = {"dtype": dtype, "device": device, "compile": compile, "backend": backend, "graphs": graphs}
        model, tokenizer = load_pretrained(AutoModelForSequenceClassification, source, **how)
        limit, known = token_limit(model, tokenizer), of_config(model.config)
        if max_length is not None:
            known.warn(source, max_length=max_length)
        else:
            max_length = limit if known.max_length is None else min(known.max_length, limit)
        return cls(model, tokenizer, checked_limit(limit, max_length, name=str(source)))

    @property
    def features(self) -> int:
        """L."""
        return self.model.config.num_labels

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, L)."""
        return self.model(**batch.model_inputs(self.model.device)).logits

    def run(self, texts: Iterable[Text], **options: Any) -> Iterator[Outcome]:
        """Logits in order, streamed; ``options`` are those of ``run_texts``."""
        return super().run(self._pairs(texts) if self.fine_tuning.pairs else texts, **options)

    def _pairs(self, texts: Iterable[Text]) -> Iterator[Text]:
        for number, text in enumerate(texts):
            if isinstance(text, str) or (isinstance(text, Document) and text.pair is None):
                named = text.id if isinstance(text, Document) else f"text {number}"
                raise DataError(
                    f"{named} is a single text, and the model was fine-tuned on pairs: name the field with the second "
                    f"text (pair_field, --pair-field; in training it was {self.fine_tuning.pair_field!r})"
                )
            yield text

    @property
    def fine_tuning(self) -> FineTuning:
        """Length and fields that it was fine-tuned with."""
        return of_config(self.model.config)

    @property
    def problem_type(self) -> str:
        """The config's, else regression for one label and single-label for several."""
        config = self.model.config
        return config.problem_type or (REGRESSION if config.num_labels == 1 else SINGLE_LABEL)

    @property
    def labels(self) -> list[str]:
        """Names in the order of the logits; of a name that several have, with the place, as "name (0)"."""
        names = [self.model.config.id2label[place] for place in range(self.features)]
        times = Counter(names)
        return [name if times[name] == 1 else f"{name} ({place})" for place, name in enumerate(names)]

    @property
    def classes_(self) -> list[Any]:
        """``labels`` in the type that they had in training, as scikit-learn calls them."""
        try:
            return list(map(TYPES.get(self.fine_tuning.label_type, str), self.labels))
        except (KeyError, ValueError):  # renamed in the folder
            return self.labels

    @property
    def label2id(self) -> dict[str, int]:
        """Places of the labels among the logits."""
        return {label: place for place, label in enumerate(self.labels)}

    def logits(
        self, texts: Any, *, text_field: str | None = None, pair_field: str | None = None, **options: Any
    ) -> np.ndarray:
        """Logits float32 (N, L) of ``texts``, (L,) of one string; ``options`` and fields as in ``predict``."""
        fields = self.fine_tuning.fields(self.model.name_or_path, text_field=text_field, pair_field=pair_field)
        return self.values(texts, **fields, **options)

    def predict_proba(self, texts: Any, **options: Any) -> np.ndarray:
        """Probabilities float64 (N, L) in the order of ``classes_``, (L,) of one string; ``options`` as in ``predict``.

        Raises ConfigurationError for a regression, and the errors of ``predict``.
        """
        if self.problem_type == REGRESSION:
            raise ConfigurationError("a regression has no probabilities: predict gives its values")
        return self._probabilities(self.logits(texts, **options))

    def __call__(self, texts: Any, *, top_k: int | None = 1, **options: Any) -> list[Any]:
        """``label`` and ``score`` of each text as transformers' text-classification pipeline gives them.

        ``top_k``: as many of the best labels in a list for each text (None: all); of 1 the best alone. Of a regression
        the scores are its values; ``options`` and errors as in ``predict``.
        """
        logits = self.logits(texts, **options)
        scores = logits if self.problem_type == REGRESSION else self._probabilities(logits)
        found = []
        for row in np.atleast_2d(scores).tolist():
            best = sorted(zip(row, self.classes_, strict=True), key=lambda each: -each[0])[:top_k]
            found.append([{"label": label, "score": score} for score, label in best])
        if top_k == 1:
            return [best for (best,) in found]
        return found[0] if logits.ndim == 1 else found

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        wide = logits.astype(np.float64)
        if self.problem_type == MULTI_LABEL:
            return np.exp(-np.logaddexp(0.0, -wide))  # sigmoid
        exponentials = np.exp(wide - wide.max(axis=-1, keepdims=True))
        return exponentials / exponentials.sum(axis=-1, keepdims=True)

    def predict(
        self,
        texts: Any,
        *,
        text_field: str | None = None,
        pair_field: str | None = None,
        threshold: float = 0.5,
        strategy: str = "whole",
        overlap: int = 0,
        on_long: str = "truncate",
        max_tokens_per_batch: int = DEFAULT_BATCH_TOKENS,
        progress: bool = False,
        batch_size: int | None = None,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Labels and scores of ``texts``, a dictionary each, in order; one dictionary of one string.

        ``label``, ``score`` and ``scores`` (a probability for each of ``classes_``); of a multi-label model ``labels``
        (those of at least ``threshold``) and ``scores``; of a regression ``score``, or ``scores`` of several values.

        ``texts``: as in ``Encoder.encode``; a pair is a tuple, or of a table ``text_field`` and ``pair_field``. None
        of a field: as in fine-tuning. The other options are those of ``Encoder.encode``, and so are the errors.
        """
        check_threshold(threshold)
        logits = self.logits(
            texts,
            text_field=text_field,
            pair_field=pair_field,
            strategy=strategy,
            overlap=overlap,
            on_long=on_long,
            max_tokens_per_batch=max_tokens_per_batch,
            progress=progress,
            batch_size=batch_size,
        )
        record = self.record_format(threshold, self.classes_)
        return record(logits) if logits.ndim == 1 else [record(row) for row in logits]

    def record_format(
        self, threshold: float, classes: Sequence[Any] | None = None
    ) -> Callable[[np.ndarray], dict[str, Any]]:
        """The function that makes a record of one text's logits: one label, several labels, or values.

        ``classes``: the labels; default: as files have them, text.
        """
        labels = list(map(written, self.labels)) if classes is None else classes

        def one_label(logits: np.ndarray) -> dict[str, Any]:
            scores = dict(zip(labels, self._probabilities(logits).tolist(), strict=True))
            best = labels[int(logits.argmax())]
            return {"label": best, "score": scores[best], "scores": scores}

        def multi_label(logits: np.ndarray) -> dict[str, Any]:
            scores = dict(zip(labels, self._probabilities(logits).tolist(), strict=True))
            return {"labels": [label for label, score in scores.items() if score >= threshold], "scores": scores}

        def regression(logits: np.ndarray) -> dict[str, Any]:
            values = logits.astype(np.float64).tolist()
            return {"score": values[0]} if len(values) == 1 else {"scores": dict(zip(labels, values, strict=True))}

        return {MULTI_LABEL: multi_label, REGRESSION: regression}.get(self.problem_type, one_label)


def check_threshold(threshold: float) -> None:
    """Raise ConfigurationError for what is no probability."""
    if not 0 <= threshold <= 1:
        raise ConfigurationError(f"threshold is {threshold}; it is a probability")
