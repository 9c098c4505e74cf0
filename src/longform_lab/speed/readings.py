"""Ways to make one vector of a whole document: the original over chunks in several runtimes, and Longforms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel

from longform.conversion.convert import convert
from longform.export.formats import traced, write, write_int8
from longform.inference.encoders import Encoder
from longform.inference.exported import FILES, HIDDEN, open_graph
from longform.inference.weights import quiet_transformers
from longform_lab.speed.checks import WrongOutput

CHUNK = 512  # tokens, special ones included
CHUNKS = "chunks, transformers float32"  # what others are compared with
CONVERSIONS: dict[str, dict[str, Any]] = {  # of the original, by name: options of ``convert``
    **{f"window {window}": {"attention_window": window} for window in (32, 64, 128)},
    "pure mean": {"attention_window": None, "projection": "mean", "projected_length": 256, "sink_tokens": 8},
}
LOWEST = {"float32": 0.9999, "bfloat16": 0.99, "int8": 0.9}  # cosine of a document's vector to what it should be


@dataclass(frozen=True)
class Reading:
    """One way. ``open``: the encoder, for a number of threads; ``dtype``: of its products, "int8" too.

    ``expected``: the vectors (N, D) that it should give of some texts.
    """

    name: str
    dtype: str
    strategy: str
    open: Callable[[int], Encoder]
    expected: Callable[[Sequence[str]], np.ndarray]

    def vectors(self, encoder: Encoder, texts: Sequence[str], batch_tokens: int) -> np.ndarray:
        """float32 (N, D)."""
        return encoder.encode(list(texts), strategy=self.strategy, max_tokens_per_batch=batch_tokens)

    def check(self, encoder: Encoder, texts: Sequence[str], batch_tokens: int) -> float:
        """The lowest cosine between its vectors of ``texts`` and what they should be. Raises WrongOutput."""
        found, wanted = self.vectors(encoder, texts, batch_tokens), self.expected(texts)
        lowest = float((found * wanted).sum(axis=1).min())
        if not lowest >= LOWEST[self.dtype]:
            raise WrongOutput(f"a vector is wrong: cosine {lowest:.4f}, at least {LOWEST[self.dtype]} is allowed")
        return lowest


def all_readings(
    original: str | Path, longforms: Mapping[str, Path], folder: Path, *, length: int, dtypes: Sequence[str]
) -> list[Reading]:
    """Every reading; what is converted and exported is in ``folder``.

    ``original``: an encoder of 512 tokens or more; ``longforms``: folders of Longforms made of it, by name, beside
    those that are converted here for ``length`` tokens. ``dtypes``: those that torch multiplies fast here.
    """
    plain = partial(Encoder.from_pretrained, original, max_length=CHUNK, normalise=True)

    def expected(texts: Sequence[str]) -> np.ndarray:
        return plain().encode(list(texts), strategy="chunk-average")

    def run_by(backend: str, threads: int) -> Encoder:
        encoder = plain()
        return replace(
            encoder, model=open_graph(_graph(encoder, folder, backend), encoder.model.config, precision=None)
        )

    chunks = partial(Reading, strategy="chunk-average", expected=expected)
    found = [
        chunks(name=f"chunks, transformers {dtype}", dtype=dtype, open=lambda threads, dtype=dtype: plain(dtype=dtype))
        for dtype in dtypes
    ]
    found += [
        chunks(name="chunks, ONNX Runtime float32", dtype="float32", open=partial(run_by, "onnx")),
        chunks(name="chunks, ONNX Runtime int8", dtype="int8", open=partial(run_by, "onnx-int8")),
        chunks(name="chunks, OpenVINO", dtype=dtypes[-1], open=partial(run_by, "openvino")),
    ]
    for name, options in CONVERSIONS.items():
        for dtype in dtypes:
            place = partial(_converted, original, folder / name.replace(" ", "-"), max_length=length, **options)
            found.append(_longform(f"Longform, {name}, {dtype}", dtype, place))
    for name, place in longforms.items():
        found += [_longform(f"Longform, {name}, {dtype}", dtype, lambda place=place: place) for dtype in dtypes]
    return found


def _graph(encoder: Encoder, folder: Path, backend: str) -> Path:
    """The encoder exported for ``backend``, made where it is not there."""
    path = folder / Path(FILES[backend]).name
    if path.exists():
        return path
    format, _, quantized = backend.partition("-")
    if quantized:
        return write_int8(_graph(encoder, folder, format), format)
    program = traced(encoder.model, tuple(encoder.tokenizer.model_input_names), HIDDEN)
    return write(program, folder, format, output=HIDDEN)


def _converted(original: str | Path, place: Path, **options: Any) -> Path:
    if not place.exists():
        with quiet_transformers():
            convert(original, **options).save_pretrained(place)
    return place


def _longform(name: str, dtype: str, place: Callable[[], Path]) -> Reading:
    def opened(threads: int) -> Encoder:
        return Encoder.from_pretrained(place(), dtype=dtype, normalise=True, max_length=None)

    return Reading(name, dtype, "whole", opened, lambda texts: in_one_piece(place(), texts))


def in_one_piece(folder: Path, texts: Sequence[str]) -> np.ndarray:
    """Vectors (N, D) of a Longform in float32, a text at a time, each through whole layers, as in training."""
    encoder = Encoder.from_pretrained(folder, normalise=True)
    with quiet_transformers():
        model: Any = AutoModel.from_pretrained(folder).float().eval().requires_grad_(False)
    found = []
    for text in texts:
        given = dict(encoder.tokenizer(text, truncation=True, max_length=encoder.limit, return_tensors="pt"))
        with torch.enable_grad():  # so a layer takes the text in one piece; frozen weights keep nothing
            states = model(**given).last_hidden_state
        found.append(encoder.pool(states, given)[0].numpy())
    return encoder.finished(np.stack(found))
