"""What a competitor is: something that can be built for a shape, checked and timed."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from torch import Tensor, nn

from longform.studies.speed.floor import Floor
from longform.studies.speed.shapes import Cell, Shape


@dataclass(frozen=True, kw_only=True)
class Competitor:
    """One architecture in one setting.

    Args:
        name: on the command line and in records.
        label: in tables and pictures.
        family: "ours"; "order" (ours with its products in another order); "full" (full attention); "peer" (other
            implementations of Linformer); "sparse" (other architectures).
        build: makes the float32 model, without dropout: hidden states (B, n, D) -> (B, n, D).
        expected: its output by a slower and plainer way, from (a float64 copy of the model, hidden states); None
            where there is none.
        verify: compares the implementation with an independent one, with copied weights, on a short text; raises
            WrongOutput.
        floor: the plan of its products; None for another architecture, whose rows show ours-window's floor.
        packages: what it needs beyond the package's own dependencies.
        autocast: in bfloat16 its weights stay in float32, because it does not run otherwise.
        quadratic: time and memory grow as n².
        longest: most tokens that it is measured with, or None.
        refuses: why it has no model of a shape; "" where it has one.
        details: what of its attention depends on the shape and is not a setting of the cell, for its records.
    """

    name: str
    label: str
    family: str
    build: Callable[[Shape], nn.Module]
    expected: Callable[[nn.Module, Tensor], Tensor] | None = None
    verify: Callable[[Shape], None] | None = None
    floor: Callable[[Shape, int], Floor] | None = None
    packages: tuple[str, ...] = ()
    autocast: bool = False
    quadratic: bool = False
    longest: int | None = 65_536
    refuses: Callable[[Shape], str] = lambda shape: ""
    details: Callable[[Shape], dict[str, int]] = lambda shape: {}

    def missing(self, cell: Cell) -> str:
        """Why it cannot run in this cell, as far as that is known without trying; "" where it can."""
        absent = [name for name in self.packages if find_spec(name) is None]
        if absent:
            return f'not installed: {", ".join(absent)} (pip install "longform[peers]")'
        if self.longest is not None and cell.length > self.longest:
            return f"above {self.longest:,} tokens only Longform is measured"
        return self.refuses(cell.shape)
