"""Other layers in the place of a model's linear ones."""

from collections.abc import Callable

from torch import nn

from longform.layers.linear import is_hooked

Keep = Callable[[nn.Module, str], bool]  # (a layer's parent, its name there)


def replace_linears(model: nn.Module, make: Callable[[nn.Linear], nn.Module], *, keep: Keep | None = None) -> None:
    """Put make(layer) in the place of each nn.Linear of ``model``, weight of shape (F, D), unless ``keep`` says so.

    A layer with hooks of its own stays: somebody sees or changes what passes through it.
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and not is_hooked(child) and not (keep is not None and keep(parent, name)):
                setattr(parent, name, make(child))
