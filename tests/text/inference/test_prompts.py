"""Folders whose configuration files are those of BGE, E5, Nomic and GTE: converted, they have the original's vectors.

With each of their prompts, by every way to a vector: Python, the command line, evaluation, sentence-transformers.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tiny_models import make_sentence_transformer, save_bert, save_mpnet

import longform
from longform_lab.evaluation import retrieval_comparison
from longform_lab.evaluation.run import evaluate
from longform_text.cli.main import main

TEXTS = ["The near text is good", "", "far", "it is long and bad in it " * 5]
QUERIES = ["is it near?", "Far"]
CLS = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
MEAN = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "include_prompt": True}


class Kind(NamedTuple):
    """How a model's folder says that it pools, and its settings."""

    pooling: dict[str, Any]
    normalise: bool
    settings: dict[str, Any]
    lower_case: bool = False


KINDS = {
    "BGE": Kind(
        CLS, True, {"prompts": {"query": "Represent this sentence for searching relevant passages: "}}, lower_case=True
    ),
    "E5": Kind(MEAN, True, {"prompts": {"query": "query: ", "passage": "passage: "}, "similarity_fn_name": "cosine"}),
    "Nomic": Kind(
        MEAN, False,
        {
            "prompts": {"search_query": "search_query: ", "search_document": "search_document: ", "document": "text: "},
            "default_prompt_name": "search_document",
        },
    ),
    "GTE": Kind(CLS, True, {"prompts": {}, "default_prompt_name": None}),
}  # fmt: skip


def _folder(kind: Kind, save: Any, place: Path, tokenizer: Any) -> Path:
    return make_sentence_transformer(
        save(place, tokenizer, max_position_embeddings=130), pooling=kind.pooling, normalise=kind.normalise,
        config_sentence_transformers=kind.settings,
        sentence_bert_config={"max_seq_length": 128, "do_lower_case": kind.lower_case},
    )  # fmt: skip


@pytest.mark.parametrize("save", [save_bert, save_mpnet])
@pytest.mark.parametrize("name", KINDS)
def test_every_way_has_the_vectors_of_the_original(
    name: str, save: Any, tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _folder(KINDS[name], save, tmp_path / "source", tiny_tokenizer)
    folder = longform.convert(source, max_length=256).save_pretrained(tmp_path / "converted")
    original, converted = (SentenceTransformer(str(place), device="cpu") for place in (source, folder))
    encoder = longform.Encoder.from_pretrained(folder)
    expected = {prompt: original.encode(TEXTS, prompt_name=prompt) for prompt in (None, *original.prompts)}
    documents, queries = original.encode_document(TEXTS), original.encode_query(QUERIES)
    for prompt, vectors in expected.items():
        _near(converted.encode(TEXTS, prompt_name=prompt), vectors)
        _near(encoder.encode(TEXTS, prompt_name=prompt), vectors)
    prompts = KINDS[name].settings["prompts"]
    asked = next(iter(prompts), None)
    _near(_embedded(folder, asked, tmp_path), expected[asked])
    _near(encoder.encode_document(TEXTS), documents)
    _near(encoder.encode_query(QUERIES), queries)
    for found, vectors in zip(_evaluated(folder, monkeypatch), (queries, documents), strict=True):
        _near(found, vectors)
    assert len({vectors.round(4).tobytes() for vectors in expected.values()}) == len({"", *prompts.values()})


def _near(found: np.ndarray, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def _embedded(folder: Path, prompt: str | None, place: Path) -> np.ndarray:
    """What ``longform embed`` writes."""
    rows = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    (place / "texts.jsonl").write_text(rows)
    output = place / f"{prompt}.jsonl"
    named = [] if prompt is None else ["--prompt-name", prompt]
    assert main(["embed", str(folder), str(place / "texts.jsonl"), "--output", str(output), *named]) == 0
    return np.array([json.loads(line)["embedding"] for line in output.read_text().splitlines()])


def _evaluated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Vectors of queries and documents that ``longform evaluate`` scores."""
    scored: list[np.ndarray] = []
    ranker = retrieval_comparison.cosine_ranker

    def listen(queries: np.ndarray, documents: np.ndarray, *given: Any, **options: Any) -> Any:
        scored.extend((queries, documents))
        return ranker(queries, documents, *given, **options)

    monkeypatch.setattr(retrieval_comparison, "cosine_ranker", listen)
    ids = [str(place) for place in range(len(TEXTS))]
    data = (QUERIES, ids[: len(QUERIES)])
    evaluate("retrieval", data, documents=(ids, TEXTS), longform=folder, progress=False)
    return scored
