"""What counting pairs of tokens loses: beside sums over every hidden token, written out."""

import math
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longform_lab.paper import bigrams
from longform_text.training.pretraining.data import IGNORED, Batch, unigram_loss, unigram_shares

VOCABULARY = 5
DOCUMENTS = st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=8), min_size=1, max_size=5)


def _loss(documents: list[list[int]], chosen: list[int], hidden: list[Batch]) -> float:
    taught = {"input_ids": [np.array(documents[each]) for each in chosen]}
    shares = unigram_shares(np.bincount(np.concatenate(documents), minlength=VOCABULARY))
    data: Any = SimpleNamespace(tokenizer=range(VOCABULARY), taught=taught, shares=shares, validation=hidden)
    return bigrams.bigram_loss(data)


def _hidden(rows: list[list[int]], places: list[int]) -> Batch:
    ids = torch.tensor(rows)
    at = torch.tensor(places)
    labels = torch.full_like(ids, IGNORED).flatten().index_copy(0, at, ids.flatten()[at]).view_as(ids)
    return {"input_ids": ids.flatten().index_fill(0, at, 4).view_as(ids), "labels": labels}


def _one_by_one(documents: list[list[int]], shares: np.ndarray, rows: list[list[int]], places: list[int]) -> float:
    pairs = Counter(pair for document in documents for pair in pairwise(document))
    width, losses = len(rows[0]), []
    for place in places:
        row, column = divmod(place, width)
        hidden, probability = rows[row][column], shares[rows[row][column]]
        if column:
            after = {pair[1]: count for pair, count in pairs.items() if pair[0] == rows[row][column - 1]}
            if after:
                probability = (after.get(hidden, 0) + len(after) * probability) / (sum(after.values()) + len(after))
        losses.append(-math.log(probability))
    return sum(losses) / len(losses)


@given(documents=DOCUMENTS, data=st.data())
def test_bigrams_are_those_of_the_documents_with_known_tokens_before(documents, data):
    rows = data.draw(st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=4, max_size=4), min_size=1, max_size=3))
    places = sorted(data.draw(st.sets(st.integers(0, 4 * len(rows) - 1), min_size=1)))
    chosen = sorted(data.draw(st.sets(st.integers(0, len(documents) - 1), min_size=1)))
    shares = unigram_shares(np.bincount(np.concatenate(documents), minlength=VOCABULARY))
    found = _loss(documents, chosen, [_hidden(rows, places)])
    assert found == pytest.approx(_one_by_one([documents[each] for each in chosen], shares, rows, places))


def test_a_text_without_surprise_costs_less_by_pairs_than_by_frequencies(monkeypatch):
    documents = [[0, 1, 2, 3] * 20]
    shares = unigram_shares(np.bincount(documents[0], minlength=VOCABULARY))
    hidden = [_hidden([[0, 1, 2, 3]], [1, 3])]
    by_pairs = _loss(documents, [0], hidden)
    assert by_pairs < 0.1 < unigram_loss(shares, hidden)
    monkeypatch.setattr(bigrams, "COUNTED", 2)  # of so many tokens, 0 before 1 is all that is known
    assert by_pairs < _loss(documents, [0], hidden) < unigram_loss(shares, hidden)


def test_shares_add_up_to_one_and_none_is_zero():
    shares = unigram_shares(np.array([3, 0, 5]))
    assert shares.sum() == pytest.approx(1)
    assert shares.tolist() == pytest.approx([4 / 11, 1 / 11, 6 / 11])
