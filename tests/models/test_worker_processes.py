"""Workers of sentence-transformers embed with a converted folder as one process does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tiny_models import save_bert

import longform

TEXTS = [f"the {kind} text of it " * times for kind in ("good", "bad", "near") for times in range(1, 9)]


@pytest.mark.nightly
def test_two_workers_embed_as_one_process_does(tiny_tokenizer: Any, tmp_path: Path) -> None:
    first = Transformer(str(save_bert(tmp_path / "bert", tiny_tokenizer)))
    SentenceTransformer(modules=[first, Pooling(24)], device="cpu").save_pretrained(str(tmp_path / "source"))
    folder = longform.convert(tmp_path / "source", max_length=96, attention_window=16, projected_length=12)
    model = SentenceTransformer(str(folder.save_pretrained(tmp_path / "converted")), device="cpu")
    found = model.encode(TEXTS, device=["cpu", "cpu"], chunk_size=5)
    np.testing.assert_allclose(found, model.encode(TEXTS), atol=1e-5)
