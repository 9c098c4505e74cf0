"""Folders with tiny models, made once."""

from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_sentence_transformer, save_bert, save_longform


@pytest.fixture(scope="session")
def bert_folder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("bert"), tiny_tokenizer)


@pytest.fixture(scope="session")
def longform_folder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_longform(tmp_path_factory.mktemp("longform"), tiny_tokenizer)


@pytest.fixture(scope="session")
def classifier_folder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = {0: "bad", 1: "good", 2: "odd"}
    folder = tmp_path_factory.mktemp("classifier")
    return save_longform(folder, tiny_tokenizer, head="classification", id2label=names)


@pytest.fixture(scope="session")
def bert_classifier_folder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    names = {0: "bad", 1: "good", 2: "odd"}
    return save_bert(tmp_path_factory.mktemp("bert_cls"), tiny_tokenizer, head="classification", id2label=names)


@pytest.fixture(scope="session")
def masked_lm_folder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_bert(tmp_path_factory.mktemp("masked_lm"), tiny_tokenizer, head="masked-lm")


@pytest.fixture(scope="session")
def sentence_transformer_folder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_bert(tmp_path_factory.mktemp("st"), tiny_tokenizer)
    return make_sentence_transformer(folder, pooling={"pooling_mode_cls_token": True}, normalise=True)
