"""One object that several threads use at once gives each what it gives one alone."""

import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoTokenizer
from transformers.utils import logging

from longform.models.loading import quiet_transformers
from longform_text.inference.classifiers import Classifier
from longform_text.inference.encoders import Encoder
from longform_text.inference.exported import open_graph

THREADS = 8
SHORT, LONG = "the near text", "good bad long short, " * 30  # the second is cut: 64 tokens fit
Call = Callable[[], Any]


@pytest.fixture(autouse=True)
def _often() -> Generator[None]:
    """Threads take turns a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def _flat(found: Any) -> list[np.ndarray]:
    """Arrays of what a call gives, in order."""
    if isinstance(found, np.ndarray):
        return [found]
    if isinstance(found, dict):
        return [np.array(list(found["scores"].values()))]
    return [array for each in found for array in _flat(each)]


def _mixed(encoder: Encoder, classifier: Classifier) -> list[Call]:
    return [
        lambda: encoder.encode(SHORT),
        lambda: encoder.encode([LONG, SHORT]),
        lambda: encoder.encode([(LONG, SHORT), ("a b", LONG)]),
        lambda: encoder.encode([LONG, SHORT], strategy="chunk-average", overlap=3),
        lambda: encoder.encode_chunks(LONG, chunk_tokens=9),
        lambda: encoder.encode_chunks([SHORT, LONG], chunk_tokens=20),
        lambda: encoder.encode(SHORT, prompt="it is: "),
        lambda: classifier.predict([LONG, SHORT]),
        lambda: classifier.predict([(SHORT, LONG), (LONG, "far")]),
    ]


@pytest.mark.parametrize("calls", [30, pytest.param(500, marks=pytest.mark.nightly)])
def test_mixed_calls_in_threads_are_those_of_one(longform_folder: Path, classifier_folder: Path, calls: int) -> None:
    mixed = _mixed(Encoder.from_pretrained(longform_folder), Classifier.from_pretrained(classifier_folder))
    alone = [_flat(call()) for call in mixed]

    def work(thread: int) -> None:
        for turn in range(calls):
            number = (thread + turn) % len(mixed)
            found = _flat(mixed[number]())
            assert len(found) == len(alone[number])
            for own, right in zip(found, alone[number], strict=True):
                np.testing.assert_allclose(own, right, rtol=0, atol=1e-5)

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [None] * THREADS


def test_a_tokenizer_that_cuts_and_pads_by_itself_does_not_here(longform_folder: Path, tmp_path: Path) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(longform_folder)
    tokenizer.backend_tokenizer.enable_truncation(5)
    tokenizer.backend_tokenizer.enable_padding(length=9)
    encoder = Encoder.from_pretrained(longform_folder)
    for path in longform_folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "tokenizer.json").unlink()
    tokenizer.save_pretrained(tmp_path)
    switched = Encoder.from_pretrained(tmp_path)
    assert switched.tokenizer.backend_tokenizer.truncation is None
    assert switched.tokenizer.backend_tokenizer.padding is None
    np.testing.assert_array_equal(switched.encode(LONG), encoder.encode(LONG))


def test_a_graph_of_openvino_gives_each_thread_its_own_result(bert_folder: Path, tmp_path: Path) -> None:
    from openvino import Model, save_model
    from openvino import opset15 as ops

    ids = ops.parameter([-1, -1], np.int64, name="input_ids")
    ids.output(0).get_tensor().set_names({"input_ids"})
    states = ops.unsqueeze(ops.sqrt(ops.convert(ids, "f32")), ops.constant(2))
    states.output(0).get_tensor().set_names({"last_hidden_state"})
    save_model(Model([states], [ids]), tmp_path / "model.xml", compress_to_fp16=False)
    graph = open_graph(tmp_path / "model.xml", AutoConfig.from_pretrained(bert_folder), "openvino")

    def work(thread: int) -> None:
        given = torch.full((thread + 1, 300), thread)
        for _ in range(30):
            found = graph(input_ids=given).last_hidden_state
            torch.testing.assert_close(found, given[..., None].float().sqrt())

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [None] * THREADS


def test_loading_in_threads_leaves_the_log_of_transformers_as_it_was() -> None:
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    begun = threading.Barrier(2)

    def load(thread: int) -> None:
        begun.wait(timeout=600)
        with quiet_transformers():
            time.sleep(0.05 + 0.1 * thread)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(load, range(2)))
    assert before == (logging.get_verbosity(), logging.is_progress_bar_enabled())
