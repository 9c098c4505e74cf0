"""A mean in which a repeated token weighs the root of its count: the same vectors by every road."""

import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tiny_models import make_sentence_transformer, save_bert
from transformers import AutoModel

import longform
from longform.errors import ConversionError
from longform_text.cli.main import main

COUNTED = ["the near text", "The far text", "the good", "the of the the"]
TEXTS = ["the far the text the is bad", "", "the", "good or bad in it " * 5]
NEAR = {"rtol": 0, "atol": 1e-5}


@pytest.fixture
def source(tiny_tokenizer: Any, tmp_path: Path) -> Path:
    folder = save_bert(tmp_path / "source", tiny_tokenizer)
    return make_sentence_transformer(folder, pooling={"pooling_mode_mean_tokens": True}, normalise=True)


def _expected(folder: Path, tokenizer: Any, text: str, idf: np.ndarray | None = None) -> np.ndarray:
    """The mean, weighted by counts that are made anew."""
    model = AutoModel.from_pretrained(folder).eval()
    inputs = tokenizer(text, return_tensors="pt")
    ids = inputs["input_ids"][0].tolist()
    counts = Counter(ids)
    weights = np.array([1 / math.sqrt(counts[token]) for token in ids])
    if idf is not None:
        weights = weights * idf[ids]
    with torch.inference_mode():
        states = model(**inputs).last_hidden_state[0].numpy()
    vector = weights @ states
    return vector / np.linalg.norm(vector)


def test_vectors_are_the_same_by_every_road(source: Path, tiny_tokenizer: Any, tmp_path: Path) -> None:
    main(["convert", str(source), str(tmp_path / "out"), "--max-length", "64", "--sublinear-tf"])
    encoder = longform.Encoder.from_pretrained(tmp_path / "out")
    expected = np.stack([_expected(source, tiny_tokenizer, text) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, **NEAR)
    for trusted in ({}, {"trust_remote_code": True}):  # after import longform, and as without it
        loaded = SentenceTransformer(str(tmp_path / "out"), device="cpu", **trusted)
        np.testing.assert_allclose(loaded.encode(TEXTS), expected, **NEAR)
    loaded.save(str(tmp_path / "saved"))
    np.testing.assert_allclose(SentenceTransformer(str(tmp_path / "saved")).encode(TEXTS), expected, **NEAR)
    again = longform.convert(tmp_path / "out", max_length=128).save_pretrained(tmp_path / "longer")
    np.testing.assert_allclose(longform.Encoder.from_pretrained(again).encode(TEXTS), expected, **NEAR)


AFTERWARDS = """
import sys
from longform_text.cli.main import main

assert main(sys.argv[1:]) == 0
from sentence_transformers import SentenceTransformer

print(*SentenceTransformer._module_classes)
"""


def test_the_module_is_known_in_whichever_order_packages_are_imported(source: Path, tmp_path: Path) -> None:
    """In this process longform was the second one; the other one converts before it imports sentence-transformers."""
    name = "longform.conversion.sublinear_tf.SublinearTF"
    assert name in SentenceTransformer._module_classes
    asked = ["convert", str(source), str(tmp_path / "out"), "--max-length", "64", "--sublinear-tf"]
    done = subprocess.run([sys.executable, "-c", AFTERWARDS, *asked], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == name
    assert name in [module["type"] for module in json.loads((tmp_path / "out" / "modules.json").read_text())]


def test_a_module_of_another_package_still_needs_the_flag(source: Path) -> None:
    listed = json.loads((source / "modules.json").read_text())
    listed.insert(1, {"idx": 1, "name": "1", "path": "", "type": "another.package.Module"})
    (source / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(ValueError, match="trust_remote_code"):
        SentenceTransformer(str(source), device="cpu")


def test_with_idf_and_as_an_adapter(source: Path, tiny_tokenizer: Any, tmp_path: Path) -> None:
    made = longform.convert(source, max_length=64, idf=COUNTED, sublinear_tf=True)
    idf = longform.conversion.pooling_modules.idf(COUNTED, tiny_tokenizer, len(tiny_tokenizer))
    encoder = longform.Encoder.from_pretrained(made.save_pretrained(tmp_path / "out"))
    expected = np.stack([_expected(source, tiny_tokenizer, text, idf) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, **NEAR)
    settings = longform.AlignmentSettings(
        max_steps=1, documents_per_step=2, heldout_documents=0, keep_texts=2, bf16=False, lora_rank=2
    )
    pairs = ["far", "good"], ["this is far far away. It is.", "this is good good. It is."]
    longform.align(tmp_path / "out", pairs, settings, output=tmp_path / "aligned", progress=False)
    trained = longform.Encoder.from_pretrained(tmp_path / "aligned").encode(TEXTS)
    added = longform.convert(source, adapter=tmp_path / "aligned" / "adapter").save_pretrained(tmp_path / "added")
    np.testing.assert_allclose(longform.Encoder.from_pretrained(added).encode(TEXTS), trained, **NEAR)


def test_what_has_no_mean_is_refused(tiny_tokenizer: Any, tmp_path: Path) -> None:
    folder = save_bert(tmp_path / "cls", tiny_tokenizer)
    make_sentence_transformer(folder, pooling={"pooling_mode_cls_token": True}, normalise=False)
    with pytest.raises(ConversionError, match="pools by cls"):
        longform.convert(folder, max_length=64, sublinear_tf=True)
    with pytest.raises(ConversionError, match='sublinear_tf is for task="encoder"'):
        longform.convert(folder, max_length=64, sublinear_tf=True, task="sequence-classification", num_labels=2)
