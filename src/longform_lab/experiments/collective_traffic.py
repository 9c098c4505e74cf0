"""What the collectives of a pass move: counted by a dispatch mode, which sees each of them, forward and backward."""

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

SENDING = ("all_reduce", "all_to_all_single", "all_gather_into_tensor", "reduce_scatter_tensor", "broadcast")


class Traffic(TorchDispatchMode):
    """``messages``: name and bytes of each tensor that this process gave to a collective."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = func._schema.name.partition("::")
        if namespace == "_c10d_functional" and name in SENDING:
            self.messages.append((name, args[0].numel() * args[0].element_size()))
        return func(*args, **(kwargs or {}))

    @property
    def bytes(self) -> int:
        """In all."""
        return sum(size for _, size in self.messages)
