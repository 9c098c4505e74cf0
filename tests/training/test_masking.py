"""Hidden tokens: the right share, never a special token, fixed for the validation set at every length."""

import numpy as np

from longform.data.special_tokens import SpecialTokens
from longform.data.token_store import BlockFrame, Blocks, TokenStore
from longform.training.pretraining.masking import Hiding, collate_blocks, fixed_masked_set, mask_block

HIDING = Hiding(0.15, mask_id=4, first_ordinary=5, vocabulary=90)
FRAME = BlockFrame(SpecialTokens((2,), (3,)), 3, 0)


def test_the_shares_are_bert_s() -> None:
    content = np.full(20_000, 50)
    hidden, places, labels = mask_block(content, HIDING, 3, (0, 1))
    assert len(places) == 3_000
    assert (labels == 50).all()
    assert np.delete(hidden, places).tolist() == np.delete(content, places).tolist()
    masked, same = (hidden[places] == 4).mean(), (hidden[places] == 50).mean()
    assert abs(masked - 0.8) < 0.03
    assert abs(same - 0.1) < 0.02
    assert hidden[hidden != 4].min() >= 5


def test_masks_depend_on_their_seed_alone() -> None:
    content = np.arange(10, 60)
    one, again, other = (mask_block(content, HIDING, 3, seed)[1].tolist() for seed in ((0, 7), (0, 7), (0, 8)))
    assert one == again != other


def test_separators_are_not_hidden() -> None:
    content = np.array([3, 9, 3])
    assert all(mask_block(content, HIDING, 3, (seed,))[1].tolist() == [1] for seed in range(20))


def test_a_batch_says_where_and_what() -> None:
    blocks = [mask_block(content, HIDING, 3, (5,)) for content in (np.arange(10, 40), np.arange(50, 60))]
    batch = collate_blocks(blocks, FRAME, 32)
    assert batch.input_ids.shape == (2, 32)
    assert batch.attention_mask is not None
    assert batch.attention_mask.sum(1).tolist() == [32, 12]
    whole, _ = FRAME.stack([np.arange(10, 40), np.arange(50, 60)], 32)
    assert whole.flatten()[batch.places].tolist() == batch.labels.tolist()
    assert batch.weight == 4 + 2


def test_the_validation_set_asks_for_the_same_tokens_at_every_length() -> None:
    tokens = np.random.default_rng(0).permutation(np.arange(5, 905)).astype(np.uint16)
    store = TokenStore(tokens, np.array([300, 420, 900]))
    asked = []
    for length, packing in ((12, "full"), (33, "full"), (47, "documents")):
        blocks = Blocks(store, np.array([0, 2]), FRAME, length=length, packing=packing, keep_rest=True)
        parts = fixed_masked_set(blocks, HIDING, blocks_at_once=4)
        asked.append(sorted(label for part in parts for label in part.labels.tolist()))
    assert asked[0] == asked[1] == asked[2]
    assert len(asked[0]) == round(0.15 * 300) + round(0.15 * 480)


def test_texts_without_tokens_ask_for_nothing() -> None:
    blocks = Blocks(TokenStore(np.zeros(0, np.int32), np.zeros(2, np.int64)), np.arange(2), FRAME, length=8,
                    packing="full", keep_rest=True)  # fmt: skip
    assert fixed_masked_set(blocks, HIDING, blocks_at_once=2) == []
