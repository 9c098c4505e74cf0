"""Texts of requests become rows of token ids, and rows become results; what cannot be read is refused."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from longform.errors import DataError
from longform.pretrained.tokenizers import content_ids
from longform_text.data.batching import TokenizedText, tokenize
from longform_text.data.text import Text, clean_text
from longform_text.inference.chunks import ChunkPlan, chunk_plan, chunk_vectors, tokens_around
from longform_text.inference.classifiers import Classifier
from longform_text.inference.encoders import Encoder
from longform_text.serving.engine import Engine, States
from longform_text.serving.errors import Refusal

Row = tuple[TokenizedText, Callable[[Any], Any]]  # token ids, and what is made of the model's output for them


class Rows(NamedTuple):
    """The rows of a request; ``truncated``: tokens that were cut off its texts; ``plans``: how chunks are read."""

    rows: list[Row]
    truncated: int = 0
    plans: tuple[ChunkPlan, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens that the model reads."""
        return sum(len(tokens.input_ids) for tokens, _ in self.rows)


def text_rows(
    engine: Engine,
    texts: Sequence[Text],
    finish: Callable[[Any], Any],
    *,
    truncate: bool,
    prompt: str = "",
) -> Rows:
    """A row a text; ``truncate``: a text over the limit is cut, else refused."""
    limit = engine.runner.limit
    found = tokenize([_usable(text, prompt) for text in texts], engine.runner.tokenizer, max_length=limit)
    return Rows([(each, finish) for each in found], _cut(found, limit, truncate=truncate))


def id_rows(engine: Engine, texts: Sequence[Sequence[int]], encoder: Encoder, *, truncate: bool) -> Rows:
    """A row a list of the model's own token ids; special tokens and the prompt are put around those that lack them."""
    special, finish, known = engine.special, pooled_by(encoder), len(encoder.tokenizer)
    prompt = content_ids(encoder.tokenizer, [encoder.prompt])[0] if encoder.prompt else []
    found = []
    for place, ids in enumerate(texts):
        if max(ids) >= known:
            raise Refusal(
                "invalid", f"input.{place}: {max(ids)} is no token of {engine.name}, whose ids end at {known - 1}"
            )
        found.append(_limited(engine, ids if _is_whole(engine, ids) else special.around([*prompt, *ids])))
    return Rows([(each, finish) for each in found], _cut(found, encoder.limit, truncate=truncate))


def changed(
    encoder: Encoder, *, prompt_name: str | None = None, dimensions: int | None = None, normalise: bool | None = None
) -> Encoder:
    """The encoder with what a request asks for; raises Refusal for what the model lacks."""
    if prompt_name is not None and prompt_name not in encoder.folder.prompts:
        there = ", ".join(encoder.folder.prompts) or "none"
        raise Refusal("invalid", f"prompt_name: the model has no prompt of that name; its prompts: {there}")
    if dimensions is not None and dimensions > encoder.whole:
        raise Refusal("invalid", f"dimensions: a vector has {encoder.whole}, fewer than {dimensions}")
    return encoder.changed(prompt_name=prompt_name, truncate_dim=dimensions, normalise=normalise)


def chunk_rows(encoder: Encoder, texts: Sequence[str], titles: Sequence[str], **how: Any) -> Rows:
    """A row a reading of each text; its result: (number, vector) of each of its chunks.

    ``titles``: of each text, "" for none; ``how``: options of ``chunk_plan``.
    """
    special = tokens_around(encoder)
    plans = tuple(
        chunk_plan(encoder, special, clean_text(text)[0], title=clean_text(title.strip())[0], **how)
        for text, title in zip(texts, titles, strict=True)
    )
    rows: list[Row] = []
    for plan in plans:
        for each in plan.readings:
            rows.append((each.tokens, _chunks_of(encoder, each)))
    return Rows(rows, 0, plans)


def pooled_by(encoder: Encoder) -> Callable[[States], np.ndarray]:
    """The function that makes a text's vector (D,), not finished, of its states."""

    def vector(states: States) -> np.ndarray:
        return encoder.pool(*states)[0].float().cpu().numpy()

    return vector


def logits_of(row: Any) -> np.ndarray:
    """A classifier's logits (L)."""
    return row.numpy()


def check_pairs(classifier: Classifier, texts: Sequence[Text]) -> None:
    """Refuse single texts where the model was fine-tuned on pairs, and texts of both kinds."""
    paired = sum(isinstance(text, tuple) for text in texts)
    if paired not in (0, len(texts)):
        raise Refusal("invalid", f"inputs: {paired} of {len(texts)} are pairs: either all are, or none")
    if classifier.fine_tuning.pairs and not paired:
        raise Refusal("invalid", "inputs: the model was fine-tuned on pairs of texts: give [first, second] of each")


def _chunks_of(encoder: Encoder, reading: Any) -> Callable[[States], Any]:
    def vectors(states: States) -> Any:
        return list(chunk_vectors(encoder, reading, states.last, states.inputs, states.layers))

    return vectors


def _usable(text: Text, prompt: str) -> Text:
    if isinstance(text, str):
        return clean_text(prompt + text)[0]
    if len(text) != 2:
        raise DataError("neither a text nor a pair")
    return clean_text(text[0])[0], clean_text(text[1])[0]


def _is_whole(engine: Engine, ids: Sequence[int]) -> bool:
    first, last = engine.special
    return (
        engine.special.total > 0
        and len(ids) >= len(first) + len(last)
        and tuple(ids[: len(first)]) == first
        and (not last or tuple(ids[-len(last) :]) == last)
    )


def _limited(engine: Engine, ids: Sequence[int]) -> TokenizedText:
    """The first of more ids than the model takes, and the special ones at the end."""
    beyond = max(0, len(ids) - engine.runner.limit)
    if not beyond:
        return TokenizedText(list(ids))
    suffix = engine.special.suffix
    return TokenizedText([*ids[: engine.runner.limit - len(suffix)], *suffix], None, beyond)


def _cut(found: Sequence[TokenizedText], limit: int, *, truncate: bool) -> int:
    """Tokens that were cut off; raises Refusal where none may be."""
    for place, each in enumerate(found):
        if each.truncated and not truncate:
            raise Refusal(
                "too_long",
                f"text {place} has {limit + each.truncated} tokens, the model takes {limit}: shorten it, "
                "start the server with --on-long truncate, or ask /chunks for its parts",
            )
    return sum(each.truncated for each in found)
