"""A model and a corpus are known by all that they hold."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from longform.errors import ConfigurationError
from longform.files import check_output
from longform.pretrained.checkpoint_files import model_identity, model_key
from longform_text.data.subject import corpus_key
from longform_text.data.text import Document
from longform_text.data.token_store import CorpusFiles, input_paths

TEXTS = ["the good text is long", "  ", "a bad text", "near and far " * 200]
SIZE = 40 * 2**20  # of a file, of which 256 pieces of 64 KiB are less than a half


def _change(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"x")


def test_the_key_of_a_corpus_follows_its_content(tmp_path: Path) -> None:
    lines = [json.dumps({"text": text}) for text in TEXTS]
    for name, chosen in (("one", lines), ("two", lines[::-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "texts.jsonl").write_text("\n".join(chosen))
    one, two = (CorpusFiles((str(tmp_path / name),)) for name in ("one", "two"))
    assert corpus_key(one) != corpus_key(two)
    assert corpus_key(one) != corpus_key(one, limit=2)
    (tmp_path / "two" / "texts.jsonl").write_text("\n".join(lines))
    assert corpus_key(one) == corpus_key(two)
    assert corpus_key(["a", "bc"]) != corpus_key(["ab", "c"])
    assert corpus_key(["a"]) == corpus_key([Document("1", "a", {})]) == corpus_key([{"text": "a", "label": 1}])


@pytest.mark.parametrize("place", [0, 65_536, 100_000, SIZE // 2, SIZE - 1])
def test_no_byte_of_a_corpus_changes_unseen(tmp_path: Path, place: int) -> None:
    path = tmp_path / "texts.txt"
    with path.open("wb") as file:
        file.truncate(SIZE)
    sources = [CorpusFiles((str(path),)), CorpusFiles((str(tmp_path),)), CorpusFiles((f"hf:{tmp_path}:train",))]
    before = [corpus_key(corpus) for corpus in sources]
    _change(path, place)
    assert all(corpus_key(corpus) != key for corpus, key in zip(sources, before, strict=True))


def test_what_is_not_here_is_known_by_its_name() -> None:
    one, other = (CorpusFiles((f"hf:someone/{name}:train",)) for name in ("one", "other"))
    assert corpus_key(one) != corpus_key(other)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "1_Pooling/config.json"])
def test_no_byte_of_a_model_changes_unseen(sentence_transformer_folder: Path, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(sentence_transformer_folder, tmp_path / "model")
    before = model_identity(str(folder))
    with (folder / name).open("ab") as file:
        file.truncate(SIZE)
    grown = model_identity(str(folder))
    _change(folder / name, SIZE - 70_000)
    assert before["weights_key"] != grown["weights_key"] != model_identity(str(folder))["weights_key"]


def test_every_weight_counts(bert_folder: Path) -> None:
    model = AutoModel.from_pretrained(bert_folder)
    before = model_key(model)
    with torch.no_grad():
        model.embeddings.word_embeddings.weight[-1, -1] += 1e-3
    assert model_key(model) != before
    assert model_key(model.to(torch.bfloat16)) != before


def test_standard_input_and_data_sets_are_inputs_too(tmp_path: Path) -> None:
    source = tmp_path / "texts"
    source.write_text("mine")
    with source.open() as file:
        before = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            with pytest.raises(ConfigurationError, match="the input"):
                check_output(source, inputs=input_paths(("-",)))
        finally:
            os.dup2(before, 0)
            os.close(before)
    with pytest.raises(ConfigurationError, match="the input"):
        check_output(source, inputs=input_paths((f"hf:{source}:train",)))
    for inputs in ((CorpusFiles((str(source),)),), ([source],), ("hub/name", [str(source)])):
        with pytest.raises(ConfigurationError, match="the input"):
            check_output(source, inputs=input_paths(inputs))
    assert list(input_paths((None, object(), "hf:squad:train"))) == ["squad"]
