"""The floor of a pass: the matrix products and attention calls that it cannot avoid, as numbers.

A plan lists the products of one layer in their cheapest order. Everything else that an encoder does (activation,
normalisation, residuals, pooling, copies, embeddings, the optimiser) is left out, so that time / floor says what all
of it costs.

Axes: B batch, n tokens, k slots, D hidden, I intermediate, h heads, d head dimension, w window, L layers.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from longform.functional.dense import project_first_is_cheaper
from longform_lab.speed.shapes import Shape

BACKWARD = 2  # each product has two in its backward pass: one for either operand
SDPA_BACKWARD = 2.5  # Q K^T again, and four products more for the gradients, beside the two of the forward pass


class Product(NamedTuple):
    """``count`` products (rows, inner) x (inner, columns); ``weight``: the right operand is a weight, or the left one
    of a shortening E X (``left``)."""

    rows: int
    inner: int
    columns: int
    count: int = 1
    left: bool = False

    @property
    def operations(self) -> int:
        """Floating-point operations, two a multiply-add."""
        return 2 * self.count * self.rows * self.inner * self.columns


class Attention(NamedTuple):
    """One call of scaled_dot_product_attention: ``batch`` texts or blocks, with ``queries`` and ``keys`` each."""

    batch: int
    heads: int
    queries: int
    keys: int
    dim: int

    @property
    def operations(self) -> int:
        """Floating-point operations of Q K^T and of the weights times V."""
        return 4 * self.batch * self.heads * self.queries * self.keys * self.dim


@dataclass(frozen=True)
class Floor:
    """The products and attention calls of one of ``layers`` equal layers.

    ``shortening``: numbers in all E and F of the model, which layers, heads, keys and values may share.
    """

    layers: int
    products: tuple[Product, ...]
    attention: tuple[Attention, ...]
    tokens: int
    hidden: int
    shortening: int = field(default=0, compare=False)  # models that differ in it alone have the same products

    def operations(self, work: str) -> float:
        """Floating-point operations of a pass; "train": forward and backward."""
        products = sum(product.operations for product in self.products)
        calls = sum(call.operations for call in self.attention)
        if work == "train":
            products, calls = products * (1 + BACKWARD), calls * (1 + SDPA_BACKWARD)
        return float(self.layers * (products + calls))

    def bytes(self, work: str, element: int) -> float:
        """Bytes that must come from or go to memory, ``element`` bytes a number.

        Inference: every weight once; in each layer the hidden states twice in (all of them must be seen to shorten
        them, then again as queries) and once out. Training: weights thrice (forward, backward, update) and three more
        float32 numbers a weight (gradient, two moments, in and out); the hidden states thrice as often.
        """
        linear = sum(product.inner * product.columns for product in self.products if not product.left)
        weights = self.layers * linear + self.shortening
        states = self.layers * 3 * self.tokens * self.hidden
        if work == "train":
            return float(weights * (3 * element + 6 * 4) + 3 * states * element)
        return float((weights + states) * element)


def _floor(shape: Shape, batch: int, first: tuple[Product, ...], rows: int, *calls: Attention) -> Floor:
    """``first``: products beside those of all architectures; ``rows``: tokens or slots of a text's keys and values."""
    n, hidden, intermediate = shape.length * batch, shape.size.hidden, shape.size.intermediate
    sides, around = [Product(rows * batch, hidden, hidden)] * 2, [Product(n, hidden, hidden)] * 2  # query and output
    wide, narrow = Product(n, hidden, intermediate), Product(n, intermediate, hidden)
    return Floor(shape.size.layers, (*first, *sides, *around, wide, narrow), calls, n, hidden)


def _call(shape: Shape, batch: int, keys: int) -> Attention:
    """Every query of a text against ``keys``."""
    return Attention(batch, shape.size.heads, shape.length, keys, shape.size.head_dim)


def full_floor(shape: Shape, batch: int) -> Floor:
    """Full attention: keys and values of every token, one call n x n."""
    return _floor(shape, batch, (), shape.length, _call(shape, batch, shape.length))


def dense_floor(shape: Shape, batch: int, sharing: str) -> Floor:
    """A pure Linformer with E (and F), in the order of products that counts fewer operations."""
    size, n, k = shape.size, shape.length, shape.slots
    per_head = sharing == "none"
    rows, count = n, 2
    if project_first_is_cheaper(n=n, k=k, hidden=size.hidden, heads=size.heads, per_head=per_head):
        rows, count = k, {"none": 2 * size.heads, "headwise": 2}.get(sharing, 1)
    shortening = Product(k, n, size.hidden, count * batch, left=True)  # E X of each text: (k, n) x (n, D)
    plan = _floor(shape, batch, (shortening,), rows, _call(shape, batch, k))
    matrices = {"layerwise": 1, "key_value": size.layers, "headwise": 2 * size.layers}
    return replace(plan, shortening=k * n * matrices.get(sharing, 2 * size.layers * size.heads))


def mean_floor(shape: Shape, batch: int) -> Floor:
    """A pure Linformer with mean pooling: keys and values of the k means only."""
    return _floor(shape, batch, (), shape.slots, _call(shape, batch, shape.slots))


def local_floor(shape: Shape, batch: int) -> Floor:
    """Convolution or maximum over runs: keys and values of every token, attention to k slots."""
    return _floor(shape, batch, (), shape.length, _call(shape, batch, shape.slots))


def window_floor(shape: Shape, batch: int) -> Floor:
    """Blocks of w queries against 3 w tokens, and all queries against the slots.

    Full attention up to 2 w tokens, and where a slot is a token: every query then sees every token once.
    """
    size, n, w = shape.size, shape.length, shape.window
    if n <= max(2 * w, shape.window_slots):
        return full_floor(shape, batch)
    blocks = Attention(batch * -(-n // w), size.heads, w, 3 * w, size.head_dim)
    return _floor(shape, batch, (), n, blocks, _call(shape, batch, shape.window_slots))
