"""A tokenizer with more tokens than a model has embeddings is refused wherever the two meet, before any text."""

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModel, AutoModelForSequenceClassification

from longform import convert
from longform.data.special_tokens import vocabulary_size
from longform.errors import ConfigurationError
from longform.inference.classifiers import Classifier
from longform.inference.encoders import Encoder
from longform.training.engine.students import open_student, with_labels
from longform.training.pretraining.model import config_for

SAID = r"has 105 tokens, the model 103 embeddings .*none for \[HOST\], \[ADDRESS\]\. .*resize_token_embeddings\(105\)"


@pytest.fixture
def larger(tiny_tokenizer: Any) -> Any:
    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.add_tokens(["[HOST]", "[ADDRESS]"], special_tokens=True)
    assert vocabulary_size(tokenizer) == len(tiny_tokenizer) + 2 == 105
    return tokenizer


def _with(tokenizer: Any, folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    tokenizer.save_pretrained(target)
    return target


@pytest.mark.parametrize("opened", [Encoder.from_pretrained, lambda at: open_student(at, None), convert])
@pytest.mark.parametrize("kind", ["bert", "longform"])
def test_in_a_folder(request: Any, larger: Any, tmp_path: Path, kind: str, opened: Callable[[Path], Any]) -> None:
    folder = _with(larger, request.getfixturevalue(f"{kind}_folder"), tmp_path / kind)
    with pytest.raises(ConfigurationError, match=SAID):
        opened(folder)


@pytest.mark.parametrize("opened", [Classifier.from_pretrained, lambda at: with_labels(at, 3, None)])
def test_of_a_classifier(classifier_folder: Path, larger: Any, tmp_path: Path, opened: Callable[[Path], Any]) -> None:
    with pytest.raises(ConfigurationError, match=SAID):
        opened(_with(larger, classifier_folder, tmp_path / "classifier"))


def test_in_memory(bert_folder: Path, classifier_folder: Path, larger: Any) -> None:
    model = AutoModel.from_pretrained(bert_folder)
    for opened in (
        lambda: convert(model, tokenizer=larger), lambda: open_student(model, larger),
        lambda: with_labels(AutoModelForSequenceClassification.from_pretrained(classifier_folder), 3, larger),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError, match=SAID):
            opened()


def test_with_embeddings_for_them_it_is_taken(bert_folder: Path, larger: Any, tmp_path: Path) -> None:
    model = AutoModel.from_pretrained(bert_folder)
    model.resize_token_embeddings(len(larger), mean_resizing=False)
    convert(model, tokenizer=larger, max_length=64).save_pretrained(tmp_path / "made")
    assert Encoder.from_pretrained(tmp_path / "made").encode("near [HOST]").shape == (24,)
    assert config_for(None, larger).vocab_size == 105
