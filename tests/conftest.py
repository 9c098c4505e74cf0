"""Every test runs offline, on one CPU thread, from the same seeds; and a tokenizer small enough to read."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub, which reads it once
os.environ["TOKENIZERS_PARALLELISM"] = "false"
if "LONGFORM_TEST_DEVICE" not in os.environ:  # for tests/longform/device
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton, whose kernels then run on a CPU
os.environ.setdefault("OMP_NUM_THREADS", "1")

import gc
import random
import string
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from kernel_tables import UNITS
from tiny_models import make_sentence_transformer, save_bert, save_longform

from longform.functional.native import library

torch.set_num_threads(1)

# "ci" is the default and the same on every machine; HYPOTHESIS_PROFILE=search looks for new failures, among
# HYPOTHESIS_EXAMPLES a test.
hypothesis.settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=20,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.register_profile(
    "search",
    hypothesis.settings.get_profile("ci"),
    derandomize=False,
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "1000")),
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "a", "of", "and", "to", "in", "is", "it", "for", "long", "short", "text", "near", "far", "good", "bad"]


def pytest_report_header() -> str:
    """Which compiled kernels the tests run, and which this machine lacks."""
    lacking = [units for units in library.UNITS if units not in UNITS]
    return f"compiled kernels by: {', '.join(UNITS)}; this machine lacks: {', '.join(lacking) or 'none'}"


def pytest_collection_finish() -> None:
    """Leave what tests import out of collections of garbage, which took a second each; a training has one."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Let what is left be collected, as without tests."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _seeds() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Any:
    """WordPiece as BERT has it: 5 special tokens ([PAD] is 0), letters, digits, some words; < 200 in all."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import WordPiece
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    characters = [*string.ascii_lowercase, *string.digits]
    pieces = [*characters, *(f"##{character}" for character in characters), *".,;:!?()'\"-"]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys([*SPECIAL_TOKENS, *pieces, *WORDS]))}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


@pytest.fixture(scope="session")
def tiny_tokenizer_folder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny tokenizer, saved: what AutoTokenizer.from_pretrained takes."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer.save_pretrained(folder)
    return folder


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


@pytest.fixture(params=UNITS)
def units(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What compiled kernels work with: loops on every machine, its own units where it has them."""
    monkeypatch.setattr(library, "best_units", lambda: request.param)
    return request.param
