"""The table of competitors: the architectures that are measured beside each other, each in its usual setting."""

from collections.abc import Sequence

from longform.errors import ConfigurationError
from longform_lab.speed import full_attention, other_architectures, ours, peers
from longform_lab.speed.competitor import Competitor

FAMILIES = ("ours", "full", "peer", "sparse")


def all_competitors() -> dict[str, Competitor]:
    """Every competitor by name, in the order of tables."""
    groups = (ours.COMPETITORS, full_attention.COMPETITORS, peers.COMPETITORS, other_architectures.COMPETITORS)
    return {competitor.name: competitor for group in groups for competitor in group}


def chosen_competitors(names: Sequence[str]) -> dict[str, Competitor]:
    """Competitors by name, family, or "all". Raises ConfigurationError for a name that is none of these."""
    every = all_competitors()
    found: set[str] = set()
    for name in names:
        group = [key for key, value in every.items() if name in (key, value.family, "all")]
        if not group:
            raise ConfigurationError(
                f'no competitor "{name}"; there are all, the families {", ".join(FAMILIES)}, and {", ".join(every)}'
            )
        found.update(group)
    return {name: competitor for name, competitor in every.items() if name in found}
