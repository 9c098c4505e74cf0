from dataclasses import replace

import pytest

from longform.errors import ConfigurationError
from longform_lab.speed.competitors import all_competitors, chosen_competitors
from longform_lab.speed.shapes import Cell

CELL = Cell(
    size="tiny", length=64, batch=2, slots=16, dtype="float32", mode="eager", work="inference", device="cpu", threads=1
)
PEERS = ("lucidrains", "lucidrains-share-kv", "tatp22")


def test_a_missing_package_and_a_long_text_are_reasons() -> None:
    peer = replace(all_competitors()["lucidrains"], packages=("no_such_package",))
    assert "no_such_package" in peer.missing(CELL)
    assert "only Longform" in all_competitors()["sdpa"].missing(replace(CELL, length=131_072))
    assert all_competitors()["ours-window"].missing(replace(CELL, length=1_048_576)) == ""


@pytest.mark.parametrize(("name", "length", "fits"), [
    ("nystromformer", 50, True), ("nystromformer", 128, True), ("nystromformer", 100, False),
    ("bigbird", 100, True), ("bigbird", 1_000, False), ("bigbird", 1_024, True), ("longformer", 1_001, True),
])  # fmt: skip
def test_lengths_that_an_architecture_does_not_take_are_reasons(name: str, length: int, fits: bool) -> None:
    cell = replace(CELL, length=length)
    assert (all_competitors()[name].missing(cell) == "") == fits


def test_competitors_are_chosen_by_name_or_family_in_the_order_of_tables() -> None:
    assert list(chosen_competitors(["sdpa", "ours-linear"])) == ["ours-linear", "sdpa"]
    assert set(chosen_competitors(["peer"])) == set(PEERS)
    assert chosen_competitors(["all"]).keys() == all_competitors().keys()
    with pytest.raises(ConfigurationError, match="no competitor"):
        chosen_competitors(["nobody"])
