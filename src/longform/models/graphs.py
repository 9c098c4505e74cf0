"""Passes of a model as CUDA graphs: captured once for each kind of batch, then replayed without Python.

A GPU is faster than Python can start its kernels for up to some 16,000 tokens of a model of base size: a pass of 2,048
took 13.5 ms in eager mode and 1.5 as a graph. A graph has one shape, so batches are padded: tokens and texts are
rounded up to one of a few numbers, missing tokens are padding and missing texts copies of the first. Neither changes
what comes of the others. What is returned is copied, for the next replay writes over it.

Axes: B texts, n tokens.
"""

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, update_wrapper
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import ModelOutput

from longform.errors import ConfigurationError
from longform.functional.dispatch import is_watched
from longform.functional.execution import Execution, autocasts, execution_mode
from longform.functional.masks import unseen
from longform.layers.linear import is_seen_inside
from longform.models.text_reader import reader_of

Model = TypeVar("Model", bound=nn.Module)
Outputs = dict[str, Any]

KEPT = 32  # graphs of a model
MOST_TOKENS = 32_768  # of a batch, padding included: with more a GPU never waits for Python
WARM_UPS = 3
LARGEST_ERROR = 0.02  # of what a graph gives, relative; bfloat16
NAMES = ("input_ids", "attention_mask", "token_type_ids")
OF_TOKENS = ("start_logits", "end_logits")  # (B, n); everything else of two axes is of whole texts


class Kind(NamedTuple):
    """Batches that one graph serves: ``texts`` and ``tokens`` are those of the padded batch.

    ``shortest``: the least tokens that a text may have; ``padded``: whether any text has fewer than ``tokens``.
    """

    names: tuple[str, ...]
    texts: int
    tokens: int
    shortest: int
    padded: bool


class Graph(NamedTuple):
    """A captured pass: inputs (B, n) that it reads, what runs it again, and the outputs that it writes."""

    inputs: dict[str, Tensor]
    replay: Callable[[], object]
    outputs: ModelOutput


def is_on_gpu(x: Tensor) -> bool:
    """Whether graphs of CUDA can be captured where ``x``, of any shape, lies."""
    return x.is_cuda


def new_pool() -> Any:
    """Memory that graphs share."""
    return torch.cuda.graph_pool_handle()


def record(run: Callable[[], Any], pool: Any = None) -> tuple[Callable[[], object], Any]:
    """The replay of ``run`` as a CUDA graph, and what each replay writes anew; ``pool``: memory of other graphs."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UPS):
            run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result = run()
    return graph.replay, result


def rounded(number: int, *, least: int, steps: int) -> int:
    """``number`` rounded up to one of ``steps`` numbers from a power of two to the next, no nearer than ``least``."""
    step = max(least, (1 << (number - 1).bit_length()) // (2 * steps))
    return -(-number // step) * step


def padded_tokens(tokens: int, limit: int) -> int:
    """Tokens of the graph for ``tokens``: at most an eighth more, or 16, and no more than ``limit``."""
    return min(rounded(tokens, least=16, steps=8), max(limit, tokens))


@cache
def shortest_tokens(long: int, limit: int) -> int:
    """The least number of tokens for which ``padded_tokens`` is ``long``."""
    return next(n for n in range(long, 0, -1) if n == 1 or padded_tokens(n - 1, limit) < long)


def padded_texts(texts: int) -> int:
    """Texts of the graph for so many: at most a quarter more."""
    return rounded(texts, least=1, steps=4)


class CapturedForward:
    """A model's forward pass, which replays graphs where it can; ``model.forward`` of a captured model."""

    def __init__(self, model: Any, *, kept: int) -> None:
        update_wrapper(self, model.forward)
        self.model, self.ordinary, self.kept = model, model.forward, kept
        self.graphs: OrderedDict[Kind, Graph] = OrderedDict()
        self.met: set[Kind] = set()
        self.weights: tuple[int, ...] = ()
        self.works, self.pool, self.lock = True, None, threading.Lock()

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """The model's output. A kind of batch is captured when it comes for the second time."""
        if args or not self._can_replay(inputs):
            return self.ordinary(*args, **inputs)
        with self.lock, torch.inference_mode(False), torch.no_grad():
            kind = self._kind(inputs)
            graph = None if kind is None else self._graph(kind, inputs)
            if graph is not None:
                return self._replayed(graph, inputs)
        return self.ordinary(**inputs)

    def _can_replay(self, inputs: Outputs) -> bool:
        """Whether nothing but these tensors decides what comes of them."""
        ids = inputs.get("input_ids")
        if not self.works or ids is None or torch.is_grad_enabled() or not _are_tokens(ids, inputs):
            return False
        if autocasts(ids) or is_watched() or execution_mode() is not Execution.PLAIN:
            return False
        return not any(map(is_seen_inside, self.model.children()))

    def _kind(self, inputs: Outputs) -> Kind | None:
        """The kind of a batch; None where a text does not stand at the front of its row, or is empty."""
        mask, (texts, tokens) = inputs.get("attention_mask"), inputs["input_ids"].shape
        lengths = [tokens] * texts
        if mask is not None:
            falls = (mask[:, :-1] >= mask[:, 1:]).all(dim=1) & (mask[:, 0] == 1) & (mask[:, -1] >= 0)
            lengths = torch.where(falls, mask.sum(dim=1), 0).tolist()
        limit = self.model.config.max_position_embeddings
        if min(lengths) == 0 or tokens > limit:
            return None
        long = padded_tokens(tokens, limit)
        least = shortest_tokens(long, limit)
        shortest = least if min(lengths) >= least else 1
        names = tuple(name for name in NAMES if inputs.get(name) is not None and name != "attention_mask")
        return Kind(names, padded_texts(texts), long, shortest, min(lengths) < long)

    def _graph(self, kind: Kind, inputs: Outputs) -> Graph | None:
        """The graph of a kind; None where there is none yet, and where it cannot be captured."""
        weights = tuple(x.data_ptr() for x in self.model.parameters())
        if weights != self.weights:  # moved, cast, or others
            self.graphs.clear()
            self.weights, self.works = weights, not _is_adapted(self.model)
        if kind in self.graphs:
            self.graphs.move_to_end(kind)
            return self.graphs[kind]
        if kind not in self.met or not self.works:
            self.met.add(kind)
            return None
        try:
            self.graphs[kind] = self._captured(kind, inputs)
        except Exception as error:
            self.works = False
            reason = (str(error).strip() or type(error).__name__).split("\n", 1)[0]
            warnings.warn(f"passes cannot be captured as CUDA graphs, ordinary ones serve: {reason}", stacklevel=4)
            return None
        if len(self.graphs) > self.kept:
            self.graphs.popitem(last=False)
        return self.graphs[kind]

    def _captured(self, kind: Kind, inputs: Outputs) -> Graph:
        """A graph that was compared with an ordinary pass. Raises RuntimeError where it gives something else."""
        device = inputs["input_ids"].device
        names = (*kind.names, "attention_mask") if kind.padded else kind.names
        given = {name: torch.zeros(kind.texts, kind.tokens, dtype=torch.long, device=device) for name in names}
        self._fill(given, inputs)

        def run() -> ModelOutput:
            with unseen(range(kind.shortest, kind.tokens + 1)):
                return self.ordinary(**given)

        with torch.cuda.device_of(given["input_ids"]):
            self.pool = self.pool or new_pool()
            graph = Graph(given, *record(run, self.pool))
        found, expected = self._replayed(graph, inputs), self.ordinary(**inputs)
        for name, x in expected.items():
            if not _is_near(found[name], x, inputs.get("attention_mask")):
                raise RuntimeError(f"the graph's {name} is not that of an ordinary pass")
        return graph

    def _fill(self, buffers: dict[str, Tensor], inputs: dict[str, Tensor]) -> None:
        texts, tokens = inputs["input_ids"].shape
        padding = {"input_ids": self.model.config.pad_token_id or 0}
        for name, buffer in buffers.items():
            x = inputs.get(name)
            buffer[:texts, :tokens] = 1 if x is None else x  # no mask is a mask of ones
            buffer[:texts, tokens:] = padding.get(name, 0)
            buffer[texts:] = buffer[:1]

    def _replayed(self, graph: Graph, inputs: dict[str, Tensor]) -> ModelOutput:
        self._fill(graph.inputs, inputs)
        graph.replay()
        texts, tokens = inputs["input_ids"].shape
        parts = {name: _cut(name, value, texts, tokens) for name, value in graph.outputs.items()}
        return type(graph.outputs)(**parts)


def _are_tokens(ids: Tensor, inputs: Outputs) -> bool:
    """Whether ``inputs`` are tensors of tokens (B, n) on a GPU and nothing else, and few enough."""
    given = all(name in NAMES and isinstance(x, Tensor) and x.shape == ids.shape for name, x in inputs.items())
    return given and ids.dim() == 2 and 0 < ids.numel() <= MOST_TOKENS and is_on_gpu(ids)


def _cut(name: str, value: Any, texts: int, tokens: int) -> Any:
    """A copy of the part of an output that is of the first ``texts`` and ``tokens``; of a tuple of its parts."""
    if isinstance(value, tuple):
        return tuple(_cut(name, x, texts, tokens) for x in value)
    if value.dim() > 3:
        raise RuntimeError(f"{name} has {value.dim()} axes, and nobody knows which are tokens")
    return (value[:texts, :tokens] if value.dim() == 3 or name in OF_TOKENS else value[:texts]).clone()


def _is_near(found: Any, expected: Any, mask: Tensor | None) -> bool:
    """Whether an output is the same but for rounding; of padding anything is."""
    if isinstance(expected, tuple):
        return all(_is_near(one, other, mask) for one, other in zip(found, expected, strict=True))
    if mask is not None and expected.shape[:2] == mask.shape:
        found, expected = found[mask.bool()], expected[mask.bool()]
    return bool((found.float() - expected.float()).norm() <= LARGEST_ERROR * expected.float().norm())


def _is_adapted(model: nn.Module) -> bool:
    """Whether PEFT's adapters stand beside layers: they can be switched, merged and taken out at any time."""
    return any(hasattr(part, "base_layer") for part in model.modules())


def capture(model: Model, *, kept: int = KEPT) -> Model:
    """Have passes of a Longform without gradients captured as CUDA graphs, and replayed; returns the same model.

    For batches of up to 32,768 tokens on a GPU of CUDA, padded on the right; ``kept`` graphs, the least used dropped
    first. Other passes are ordinary: with gradients, on a CPU, with hooks, adapters (PEFT) that are not merged,
    autocast, further arguments. ``longform.Encoder``, ``Classifier`` and the commands do it by themselves. A captured
    model is not pickled or copied.

    Raises ConfigurationError for a model that is not a Linformer.
    """
    if reader_of(model) is None:
        raise ConfigurationError(
            f"passes are captured of Longform's own models, not {type(model).__name__}: convert it first, or take "
            'torch.compile(model, mode="reduce-overhead")'
        )
    model.forward = CapturedForward(model, kept=kept)
    return model
