"""The table of smaller models: scores before and after healing, and times, in one row."""

from typing import Any

from longform_lab.tables.spectrum_tables import kept


def scored(heads: int, left_out: str, healed: int, sts: float) -> dict[str, Any]:
    return {
        "settings": {"kept": heads, "left_out": left_out, "healed_tokens": healed},
        "metrics": {"sts_spearman": sts, "cosine": 0.5, "parameters": 20_000_000 + heads},
    }


def test_a_row_a_model_and_way_to_choose() -> None:
    times = [
        {"settings": {"kept": heads, "tokens": tokens}, "metrics": {"milliseconds": heads * tokens / 128}}
        for heads in (12, 8) for tokens in (512, 128)
    ]  # fmt: skip
    scores = [scored(12, "none", 0, 86.7), scored(8, "the most alike", 0, 70.0), scored(8, "the most alike", 9, 80.0),
              scored(6, "any (seed 0)", 0, 40.0)]  # fmt: skip
    head, body = kept([*times, *scores])
    assert head[-2:] == ["CPU ms, 128 tokens", "CPU ms, 512 tokens"]
    assert body == [
        ["12", "none", "20.00 M", "86.7 (0.500)", "–", "12.0", "48.0"],
        ["8", "the most alike", "20.00 M", "70.0 (0.500)", "80.0 (0.500)", "8.0", "32.0"],
        ["6", "any (seed 0)", "20.00 M", "40.0 (0.500)", "–", "–", "–"],
    ]
