"""Perturb layers: their outputs change as if they had other weights, while the weights themselves stay untouched.

A forward pass carries G groups of rows. In group g, the weight W of layer p acts as ``W + U M_pg V^T``, so the layer's
output is ``x W^T + ((x V) M_pg^T) U^T``: two thin products more. A bias or the weight of a norm acts as if a vector of
the group were added to it. All perturbed and unperturbed rows of an estimate therefore share one pass.
`estimator.live_terms` makes the matrices and vectors.

A pass that ends in label words reads one token of each row at its end. Layers whose results at other tokens are not
read (`layer_probe.layers_read_at_last`: most of the last block) then compute that token only.

The cost is memory traffic more than arithmetic. A plain Linear therefore begins with ``[h | 1] [U | bias]^T``, where h
is ``(x V) M_pg^T``, and adds the product with W to it, as nn.Linear does with its bias alone: no further pass over the
output is needed.

Shapes: N rows, T tokens, A = N T, G groups (N = G x rows per group, groups contiguous), I and O inputs and outputs,
r rank.
"""

import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from protocol.errors import OperatorError

WEIGHT = "weight"
BIAS = "bias"
_SUFFIX = "Perturbed"  # of the class that takes the place of another


@dataclass(frozen=True, slots=True)
class MatrixTerm:
    """Holds ``u m_g v^T``, in the orientation of the stored parameter.

    Attributes:
        u: [rows, r] and v: [cols, r] in the dtype of the weights.
        m: [G, r, r] in fp32 (fp64 for an fp64 model): bf16 would lose a small epsilon next to a large C.
        up: `with_spare_row` of u, if there is one: layers with a bias are faster with it.
    """

    u: Tensor
    v: Tensor
    m: Tensor
    up: Tensor | None = None


@dataclass(frozen=True, slots=True)
class VectorTerm:
    """Holds what is added to a bias or to the weight of a norm: [G, rows] in fp32 (fp64)."""

    delta: Tensor


Term = MatrixTerm | VectorTerm


def with_spare_row(u: Tensor) -> Tensor:
    """Return u [rows, r] as a contiguous [r + 1, rows]; layers put their bias into the last row for their product."""
    result = u.new_zeros(u.shape[1] + 1, u.shape[0])
    result[:-1] = u.t()
    return result


class Projections:
    """Computes x V in one product for all layers that read one input (queries, keys and values; gate and up).

    A thin product costs one reading of x, regardless of its width. The previous pass shows which layers read the same
    tensor. Models that write to the tensor between two of these layers are not supported; we know of none.
    """

    def __init__(self) -> None:
        self._readers: dict[str, tuple[str, ...]] = {}  # all readers of an input, by the first one
        self._input: weakref.ref[Tensor] | None = None
        self._names: list[str] = []  # readers of the present input so far
        self._found: dict[str, Tensor] = {}

    def of(self, x: Tensor, name: str, terms: Mapping[str, Term]) -> Tensor:
        """Return x v of the term ``name``: [A, r] in the dtype of x, perhaps part of a wider matrix."""
        if self._input is None or self._input() is not x:
            self.end_pass()
            self._input = weakref.ref(x)
        self._names.append(name)
        if name not in self._found:
            found = {each: terms.get(each) for each in self._readers.get(name, (name,))}
            v_of = {each: term.v for each, term in found.items() if isinstance(term, MatrixTerm)}
            v = torch.cat(list(v_of.values()), dim=1) if len(v_of) > 1 else v_of[name]
            parts = torch.split(x.reshape(-1, x.shape[-1]) @ v, [part.shape[1] for part in v_of.values()], dim=1)
            self._found = dict(zip(v_of, parts, strict=True))
        return self._found.pop(name)

    def end_pass(self) -> None:
        """Note the readers of the last input, and release it: no more layers will read it."""
        if self._names:
            self._readers[self._names[0]] = tuple(dict.fromkeys(self._names))
        self._input, self._names, self._found = None, [], {}


class PassContext:
    """Holds what all layers of a model share in a forward pass, each part only within its block; empty between passes.

    `carrying`: the terms that are added. `reading`: the tokens that are enough. `hearing`: inputs to keep for `heard`.
    """

    def __init__(self) -> None:
        self.terms: Mapping[str, Term] = {}
        self.groups = 0
        self.tokens = 0  # N x T, or N within a layer that computes one token of each row
        self.read_at_last: AbstractSet[nn.Module] = frozenset()  # layers that may compute one token of each row
        self.read_N: Tensor | None = None  # the tokens that these compute, as indices into N x T; None: all
        self.projections = Projections()
        self._listened_to: Collection[str] = ()  # names of weights
        self._heard_P: Tensor | None = None  # the tokens at which their layers are heard, as indices into N x T
        self._heard: dict[str, Tensor] = {}  # what these layers saw there
        self._beside_ones = torch.ones(0, 0)

    @contextmanager
    def carrying(self, terms: Mapping[str, Term], groups: int, tokens: int) -> Iterator[None]:
        """Add ``terms`` within the block, to passes of exactly ``tokens`` = N x T positions in ``groups`` groups."""
        self.terms, self.groups, self.tokens = terms, groups, tokens
        try:
            yield
        finally:
            self.terms = {}
            self.projections.end_pass()

    @contextmanager
    def reading(self, last_N: Tensor, tokens: int) -> Iterator[None]:
        """Declare that the block reads only token ``last_N`` of each row's hidden state. last_N: int64[N] below T."""
        rows_N = torch.arange(len(last_N), device=last_N.device)
        self.read_N, self.tokens = rows_N * (tokens // len(last_N)) + last_N, tokens
        try:
            yield
        finally:
            self.read_N = None

    @contextmanager
    def one_token_a_row(self, read_N: Tensor) -> Iterator[None]:
        """Count only the tokens ``read_N`` within the block, for a layer that sees no others."""
        tokens, self.tokens = self.tokens, len(read_N)
        try:
            yield
        finally:
            self.tokens = tokens

    @contextmanager
    def hearing(self, names: Collection[str], positions_P: Tensor) -> Iterator[None]:
        """Keep the inputs of the layers whose weights are ``names`` at some tokens, indices into N x T, for `heard`.

        The pass must be `carrying`.
        """
        self._listened_to, self._heard, self._heard_P = names, {}, positions_P
        try:
            yield
        finally:
            self._listened_to, self._heard, self._heard_P = (), {}, None

    def heard(self, names: Sequence[str]) -> list[Tensor]:
        """Return the inputs of layers in the last pass within `hearing`, [P, I]. OperatorError: one is not linear."""
        if missing := [name for name in names if name not in self._heard]:
            raise OperatorError(f"{missing[0]} cannot have a dense core: its layer is not linear")
        return [self._heard[name] for name in names]

    def note_input(self, name: str, x: Tensor) -> None:
        """Keep what a layer sees at the tokens that are asked for, if it is listened to. x: [..., I], of all tokens."""
        if name in self._listened_to:
            self.grouped(x, name)  # raises where some tokens are missing
            self._heard[name] = x.reshape(-1, x.shape[-1])[self._heard_P]

    def grouped(self, y: Tensor, name: str) -> Tensor:
        """View [N, ..., C] or [N T, C] as [G, N / G, ..., C] or [G, N T / G, C].

        A layer may see a token more than once (a norm of each head). A layer that sees only some of the tokens raises
        OperatorError: their groups are unknown.
        """
        seen = y.numel() // y.shape[-1]
        if seen % self.tokens or y.shape[0] % self.groups or (y.ndim == 2 and seen != self.tokens):
            raise OperatorError(
                f"{name} cannot be trained: its layer sees {seen} of the {self.tokens} tokens of a batch "
                "(experts or pooling); leave it out of the run's tensors"
            )
        return y.view(self.groups, -1, *y.shape[1:])

    def beside_ones(self, flat: Tensor, dtype: torch.dtype) -> Tensor:
        """Return [flat | 1] in ``dtype``, valid until the next call: all layers share one buffer. flat: [A, C]."""
        rows, columns = flat.shape
        held = self._beside_ones
        if held.shape != (rows, columns + 1) or held.dtype != dtype or held.device != flat.device:
            held = self._beside_ones = torch.ones(rows, columns + 1, dtype=dtype, device=flat.device)
        held[:, :columns] = flat
        return held


@dataclass(frozen=True, slots=True)
class Slot:
    """Holds the names of a layer's own parameters in the checkpoint (empty: not trained), and its passes' context."""

    context: PassContext
    weight: str = ""
    bias: str = ""

    def matrix(self) -> MatrixTerm | None:
        """Return the weight's term in the current pass, if any."""
        term = self.context.terms.get(self.weight)
        return term if isinstance(term, MatrixTerm) else None

    def vector(self, name: str) -> VectorTerm | None:
        """Return a vector's term in the current pass, if any."""
        term = self.context.terms.get(name)
        return term if isinstance(term, VectorTerm) else None

    def mixed(self, h: Tensor, m: Tensor) -> Tensor:
        """Return h m_g in the dtype of m. h: [N T, r], m: [G, r, r]."""
        return torch.bmm(self.context.grouped(h, self.weight).to(m.dtype), m.contiguous()).view(h.shape)

    def add_product(self, y: Tensor, h_Ar: Tensor, m: Tensor, out: Tensor) -> None:
        """Add h m_g out^T to y in place. y: [..., O], m: [G, r, r], out: [O, r]."""
        y.view(-1, y.shape[-1]).addmm_(self.mixed(h_Ar, m).to(y.dtype), out.t())

    def with_bias(self, y: Tensor) -> Tensor:
        """Add delta_g of the bias, if it has a term, to y [N, ..., O] in place; return y."""
        if (term := self.vector(self.bias)) is not None:
            y_G = self.context.grouped(y, self.bias)
            y_G.add_(_spread(term, y_G))
        return y


def _spread(term: VectorTerm, y_G: Tensor) -> Tensor:
    """Return delta [G, C] as [G, 1, ..., C], for adding to ``y_G`` [G, N / G, ..., C]."""
    return term.delta.to(y_G.dtype).view(len(y_G), *[1] * (y_G.ndim - 2), y_G.shape[-1])


class _Layer(nn.Module):
    """Declares the slot for the type checker. Each class below replaces an existing module's class."""

    sfnode_slot: Slot


class _Product(_Layer):
    """Base of layers that map every token independently; skips tokens whose results are not read."""

    def forward(self, x: Tensor) -> Tensor:
        context = self.sfnode_slot.context
        context.note_input(self.sfnode_slot.weight, x)
        read_N = context.read_N if self in context.read_at_last else None
        if read_N is None:
            return self.perturbed(x)
        with context.one_token_a_row(read_N):
            y_NO = self.perturbed(x.reshape(-1, x.shape[-1])[read_N])
        y_AO = y_NO.new_zeros(x.numel() // x.shape[-1], y_NO.shape[-1])  # zeros, not garbage: it may hold NaN
        y_AO[read_N] = y_NO
        return y_AO.view(*x.shape[:-1], -1)

    def perturbed(self, x: Tensor) -> Tensor:
        """Return the layer's own result plus its terms; x: [..., I]."""
        raise NotImplementedError

    def own(self, x: Tensor) -> Tensor:
        """Return what the original layer computes."""
        result: Tensor = super().forward(x)
        return result


class PerturbedLinear(_Product):
    """Precedes nn.Linear in the class order, and replaces its product while a term is added."""

    weight: Tensor
    bias: Tensor | None

    def perturbed(self, x: Tensor) -> Tensor:
        slot = self.sfnode_slot
        term = slot.matrix()
        if term is None:
            return slot.with_bias(self.own(x))
        h_Ar = slot.context.projections.of(x, slot.weight, slot.context.terms)
        mixed_Ar = slot.mixed(h_Ar, term.m.transpose(1, 2))
        # The term and the bias come first, in one pass over the result if the term has `with_spare_row`.
        if self.bias is None:
            y_AO = mixed_Ar.to(term.u.dtype) @ term.u.t()
        elif term.up is None:
            y_AO = torch.addmm(self.bias, mixed_Ar.to(term.u.dtype), term.u.t())
        else:
            term.up[-1] = self.bias
            y_AO = slot.context.beside_ones(mixed_Ar, term.up.dtype) @ term.up
        y_AO.addmm_(x.reshape(-1, x.shape[-1]), self.weight.t())
        return slot.with_bias(y_AO.view(*x.shape[:-1], -1))


class PerturbedLinearLike(_Product):
    """Precedes other Linear classes with weights [O, I], such as quantised ones, and adds to their output."""

    def perturbed(self, x: Tensor) -> Tensor:
        y, slot = self.own(x), self.sfnode_slot
        if (term := slot.matrix()) is not None:
            h_Ar = slot.context.projections.of(x, slot.weight, slot.context.terms)
            slot.add_product(y, h_Ar, term.m.transpose(1, 2), term.u)
        return slot.with_bias(y)


class PerturbedConv1D(_Product):
    """Precedes transformers' Conv1D, which stores its weight as [I, O]."""

    def perturbed(self, x: Tensor) -> Tensor:
        y, slot = self.own(x), self.sfnode_slot
        if (term := slot.matrix()) is not None:
            slot.add_product(y, x.reshape(-1, x.shape[-1]) @ term.u, term.m, term.v)
        return slot.with_bias(y)


class PerturbedEmbedding(nn.Embedding):
    """Follows an Embedding's own class, which may shift the indices (OPT's positions) or scale the result."""

    sfnode_slot: Slot

    def forward(self, ids: Tensor) -> Tensor:
        slot = self.sfnode_slot
        term = slot.matrix()
        if term is None:
            return super().forward(ids)
        if ids.numel() != slot.context.tokens and ids.shape[0] == 1:
            ids = ids.expand(slot.context.tokens // ids.shape[1], -1)  # positions given once for all rows
        y = super().forward(ids)
        slot.add_product(y, nn.functional.embedding(ids.reshape(-1), term.u), term.m, term.v)
        return y


class PerturbedNorm(_Layer):
    """Precedes LayerNorm and RMSNorm classes, whose output is affine in weight and bias."""

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x)
        slot = self.sfnode_slot
        if (term := slot.vector(slot.weight)) is not None:
            # y = normal(x) w + b, so a change of w by delta adds normal(x) delta
            y_G = slot.context.grouped(y, slot.weight)
            y_G.addcmul_(slot.context.grouped(normalised(self, x), slot.weight), _spread(term, y_G))
        return slot.with_bias(y)


def normalised(module: nn.Module, x: Tensor) -> Tensor:
    """Return x normalised as ``module`` does it, before the multiplication by its weight; dtype of x."""
    if isinstance(module, nn.LayerNorm):
        return nn.functional.layer_norm(x, module.normalized_shape, None, None, module.eps)
    wide = x.to(torch.float32)  # as in transformers' RMSNorm classes, for every dtype of the model
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + norm_epsilon(module))).to(x.dtype)


def norm_epsilon(module: nn.Module) -> float:
    """Return the epsilon of an RMSNorm module, whose attribute has no common name."""
    values: Mapping[str, object] = vars(module)
    for name in ("variance_epsilon", "eps", "epsilon"):
        value = values.get(name)
        if isinstance(value, float):
            return value
    raise OperatorError(f"{type(module).__name__} cannot be trained: its epsilon is not found")


def is_norm(module: nn.Module) -> bool:
    """Return whether ``module`` is a LayerNorm, or of a class named ...RMSNorm with a weight of one dimension."""
    weight = getattr(module, WEIGHT, None)
    named = type(module).__name__.removesuffix(_SUFFIX).endswith("RMSNorm")
    return isinstance(module, nn.LayerNorm) or (named and isinstance(weight, Tensor) and weight.ndim == 1)


def perturbed_class(kind: type[nn.Module]) -> type[nn.Module] | None:
    """Return the class that replaces ``kind``; None when tensors of such a module cannot be trained."""
    name = kind.__name__ + _SUFFIX
    if issubclass(kind, nn.Embedding):
        bases: tuple[type, ...] = (PerturbedEmbedding,) if kind is nn.Embedding else (kind, PerturbedEmbedding)
    elif issubclass(kind, nn.Linear):
        bases = (PerturbedLinear if kind is nn.Linear else PerturbedLinearLike, kind)
    elif issubclass(kind, Conv1D):
        bases = (PerturbedConv1D, kind)
    elif issubclass(kind, nn.LayerNorm) or kind.__name__.endswith("RMSNorm"):
        bases = (PerturbedNorm, kind)
    else:
        return None
    return type(name, bases, {})
