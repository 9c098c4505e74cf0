"""Licence texts with their categories, of the package ``licensedcode-data`` (CC-BY-4.0), in three parts."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from longform.conversion.shipped import package_folder
from longform.errors import DataError, require
from longform_text.data.text import Document, clean_text

FEWEST_TEXTS = 70  # of a category that is learned
FRACTIONS = {"train": 0.7, "validation": 0.1, "test": 0.2}
NEAR_DUPLICATE = 0.7  # cosine of tf-idf over runs of three words; above it, two texts are one
_CATEGORY = re.compile(r"^category: *(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class LicenceTexts:
    """Licence texts in three parts; ``fields`` of each has its "category" and the number of its near-duplicate "group".

    No group is in two parts. ``unlabelled``: texts of rarer categories, none of them near a validation or test text.
    ``groups``: near-duplicate groups among the texts of the three parts; ``largest_group``: texts in the largest.
    """

    train: list[Document]
    validation: list[Document]
    test: list[Document]
    unlabelled: list[Document]
    labels: list[str]
    groups: int
    largest_group: int


def licence_documents() -> list[Document]:
    """Every licence text that is not empty, sorted by key, with its "category" in ``fields``."""
    folder = package_folder("licensedcode", "licensedcode-data") / "data" / "licenses"
    documents = []
    for path in sorted(folder.glob("*.LICENSE")):
        content = path.read_text(encoding="utf-8", errors="replace")
        front, separator, body = content.removeprefix("---\n").partition("\n---")
        category = _CATEGORY.search(front)
        if not separator or category is None:
            raise DataError(f"{path}: no front matter with a category between --- lines")
        text = clean_text(body.strip())[0]
        if text:
            documents.append(Document(path.stem, text, {"category": category[1]}))
    if not documents:
        raise DataError(f'"{folder}" has no licence texts: install licensedcode-data again')
    return documents


def licence_texts(*, seed: int = 0) -> LicenceTexts:
    """The texts of the categories that have at least 70, in parts of 70, 10 and 20 % stratified by category."""
    documents = _grouped(licence_documents())
    counts = Counter(document.fields["category"] for document in documents)
    labels = sorted(category for category, count in counts.items() if count >= FEWEST_TEXTS)
    learned = [document for document in documents if document.fields["category"] in labels]
    parts = _parted(learned, seed)
    held_out = {document.fields["group"] for document in (*parts["validation"], *parts["test"])}
    rarer = [document for document in documents if document.fields["category"] not in labels]
    sizes = Counter(document.fields["group"] for document in learned)
    return LicenceTexts(
        **parts,
        unlabelled=[document for document in rarer if document.fields["group"] not in held_out],
        labels=labels,
        groups=len(sizes),
        largest_group=max(sizes.values()),
    )


def _grouped(documents: Sequence[Document]) -> list[Document]:
    """Documents with the number of their near-duplicate "group" among their fields."""
    groups = near_duplicate_groups([document.text for document in documents])
    return [
        document._replace(fields={**document.fields, "group": group})
        for document, group in zip(documents, groups, strict=True)
    ]


def _parted(documents: Sequence[Document], seed: int) -> dict[str, list[Document]]:
    """Documents with a "category" and a "group" in the parts of ``split_groups``."""
    categories, groups = ([document.fields[name] for document in documents] for name in ("category", "group"))
    parts: dict[str, list[Document]] = {name: [] for name in FRACTIONS}
    for document, side in zip(documents, split_groups(categories, groups, seed), strict=True):
        parts[side].append(document)
    return parts


def near_duplicate_groups(texts: Sequence[str], *, threshold: float = NEAR_DUPLICATE) -> list[int]:
    """A group number for each text: chains of texts whose shingle cosine is over ``threshold`` share one.

    Shingles are runs of three words, weighted by tf-idf; a text of fewer words is compared by its words.
    """
    features = require("sklearn.feature_extraction.text", extra="train")
    graphs = require("scipy.sparse.csgraph", extra="train")
    vectorizer = features.TfidfVectorizer(analyzer=_shingles, sublinear_tf=True, dtype=np.float32)
    vectors = vectorizer.fit_transform(texts)
    near = vectors @ vectors.T > threshold
    _, groups = graphs.connected_components(near, directed=False)
    return groups.tolist()


def split_groups(categories: Sequence[str], groups: Sequence[int], seed: int) -> list[str]:
    """ "train", "validation" or "test" for each text, by FRACTIONS of each category; a group stays together.

    Largest groups first, in an order that ``seed`` shuffles, each goes where its categories are most behind.
    """
    members: dict[int, list[str]] = {}
    for category, group in zip(categories, groups, strict=True):
        members.setdefault(group, []).append(category)
    totals = Counter(categories)
    missing = {side: {name: share * totals[name] for name in totals} for side, share in FRACTIONS.items()}
    order = np.random.default_rng(seed).permutation(sorted(members)).tolist()
    chosen: dict[int, str] = {}
    for group in sorted(order, key=lambda each: -len(members[each])):
        side = max(missing, key=lambda each: _need(missing[each], members[group], totals, FRACTIONS[each]))
        chosen[group] = side
        for category in members[group]:
            missing[side][category] -= 1
    return [chosen[group] for group in groups]


def _need(missing: dict[str, float], members: Sequence[str], totals: Counter[str], share: float) -> float:
    """How far behind a part is, for the categories of a group, as a share of what it is to have."""
    return sum(missing[category] / (share * totals[category]) for category in members)


def _shingles(text: str) -> list[str]:
    words = re.findall(r"\w+", text.lower())
    return [" ".join(words[at : at + 3]) for at in range(len(words) - 2)] or words
