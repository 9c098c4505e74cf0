"""The rivals of long classification: chunks that are trained as a Longform is, and the table of all contenders."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_models import SIZES, save_bert
from transformers import AutoConfig

from longform import LinformerConfig, LinformerForSequenceClassification
from longform.data.special_tokens import content_ids, special_tokens
from longform.functional.pooling import pooled
from longform.inference.classifiers import Classifier
from longform_lab.experiments import labelled_sets, long_documents
from longform_lab.experiments.chunked_classifier import save_chunked
from longform_lab.records import read_records
from longform_lab.tables.long_documents_tables import over_splits


@pytest.fixture
def short(tiny_tokenizer: Any) -> LinformerForSequenceClassification:
    torch.manual_seed(1)
    config = LinformerConfig(
        vocab_size=len(tiny_tokenizer), projection="mean", projected_length=4, attention_window=8,
        max_position_embeddings=12, pad_token_id=tiny_tokenizer.pad_token_id, classifier_pooling="lead", num_labels=3,
        **SIZES,
    )  # fmt: skip
    return LinformerForSequenceClassification(config).eval()


@pytest.mark.parametrize("average", ["states", "logits"])
def test_chunks_are_read_one_by_one(
    average: str, short: LinformerForSequenceClassification, tiny_tokenizer: Any, tmp_path: Path
) -> None:
    save_chunked(short, tmp_path, average=average, max_length=60)
    tiny_tokenizer.save_pretrained(tmp_path)
    texts = ["the near far good text " * 6, "far", "bad bad it is long " * 3]
    found = Classifier.from_pretrained(tmp_path, max_length=60).collect(texts).values
    special, expected = special_tokens(tiny_tokenizer), []
    for ids in content_ids(tiny_tokenizer, texts):
        cut = [special.around(ids[first : first + 10]) for first in range(0, len(ids), 10)]
        with torch.no_grad():
            states = [short.linformer(torch.tensor([chunk])).last_hidden_state for chunk in cut]
            if average == "states":
                head, together = short.classifier, pooled(torch.cat(states, dim=1), None, kind="lead")
                expected.append(head.out_proj(torch.tanh(head.dense(together)))[0].numpy())
            else:
                logits = [short.classifier(each, None)[0].numpy() for each in states]
                expected.append(np.average(logits, axis=0, weights=[len(chunk) - 2 for chunk in cut]))
    assert found == pytest.approx(np.array(expected), abs=1e-5)


@pytest.mark.nightly
def test_every_contender_is_trained_and_not_again(tiny_tokenizer: Any, tmp_path: Path, monkeypatch: Any) -> None:
    generator = np.random.default_rng(0)
    rows = [
        {"text": " ".join(generator.choice(["the", "it", "is", word], size=size)), "label": label}
        for label, word in enumerate(["good", "bad"]) for size in generator.integers(10, 60, size=40)
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(tmp_path / "hyperpartisan_train.parquet")
    for module in (long_documents, labelled_sets):
        monkeypatch.setattr(module, "SHORT", 24)
    original = save_bert(tmp_path / "bert", tiny_tokenizer, max_position_embeddings=24)
    records = tmp_path / "records.jsonl"
    command = [
        "hyperpartisan", "--data", str(tmp_path), "--output", str(tmp_path / "runs"), "--splits", "1", "--original",
        str(original), "--length", "64", "--most-texts", "24", "--records", str(records),
    ]  # fmt: skip
    assert long_documents.main(command) == 0
    found = read_records([records])
    assert [record.settings["contender"] for record in found] == list(long_documents.CONTENDERS)
    assert all(0 < record.metrics["long_texts"] < 24 for record in found)
    assert next(record for record in found if record.settings["contender"] == "words").metrics["accuracy"] > 0.9
    tuned = {name: tmp_path / f"runs/hyperpartisan-{name}-1/tuned" for name in ("chunks-of-logits", "longform")}
    assert AutoConfig.from_pretrained(tuned["chunks-of-logits"]).average == "logits"
    assert AutoConfig.from_pretrained(tuned["longform"]).max_position_embeddings == 64
    assert long_documents.main(command) == 0
    assert len(read_records([records])) == len(found)


def run(contender: str, split: int, long: float, validation: float = 0.5) -> dict[str, Any]:
    return {
        "settings": {"data": "laws", "contender": contender, "split": split, "test_documents": 60},
        "metrics": {"accuracy": long + 0.1, "long_accuracy": long, "long_texts": 40, "validation": validation},
    }


def test_differences_are_paired_and_chunks_chosen_in_validation() -> None:
    rows = [
        run("cut", 1, 0.5), run("cut", 2, 0.6), run("chunks of states", 1, 0.55, 0.7),
        run("chunks of logits", 1, 0.9, 0.6),
        run("longform", 1, 0.6), run("longform", 2, 0.62),
    ]  # fmt: skip
    heads, body = over_splits(rows)
    assert body[0] == ["laws", "cut", "2", "60", "40", "65.0 ± 63.5", "55.0 ± 63.5", "", "-5.0"]
    assert body[1] == ["laws", "chunks", "1", "60", "40", "65.0", "55.0", "+5.0", ""]
    assert body[2] == ["laws", "longform", "2", "60", "40", "71.0 ± 12.7", "61.0 ± 12.7", "+6.0 ± 50.8", "+5.0"]
    assert len(heads) == len(body[0])
