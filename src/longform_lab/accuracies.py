"""Accuracies of kinds of attention on data sets, of all seeds at one rate, from records."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any


def accuracies(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[float]]:
    """(data, kind, "few" or "many") -> test accuracies of all seeds, of records, at the rate that was best with seed 0
    on samples that were kept for that.
    """
    found: dict[tuple[str, str, str], dict[float, dict[int, Mapping[str, float]]]] = {}
    for row, when in product(rows, ("few", "many")):
        settings = row["settings"]
        own = found.setdefault((settings["data"], settings["kind"], when), {})
        own.setdefault(settings["rate"], {})[settings["seed"]] = row["metrics"]
    chosen = {  # signals have one rate, and nothing that was kept to choose it
        key: max(rates.values(), key=lambda of_seeds: of_seeds[0].get(f"kept_{key[2]}", 0.0))
        for key, rates in found.items()
    }
    return {key: [of_seeds[seed][key[2]] for seed in sorted(of_seeds)] for key, of_seeds in chosen.items()}


def best_of(means: Mapping[tuple[str, str, str], float]) -> dict[tuple[str, str], float]:
    """(data, "few" or "many") -> the highest of ``means``, which are by data, kind and that."""
    best: dict[tuple[str, str], float] = {}
    for (name, _, when), value in means.items():
        best[name, when] = max(value, best.get((name, when), 0.0))
    return best
