"""What sfnode does with one architecture: a dense core, drawn directions, or a refusal in words; each is checked.

The checks of a dense core, with label words and with plain text:

* the view: losses with a moved core equal those of folded weights;
* the direct path: the gradient by the last layers' cores is that of back-propagation where the norm before the head is
  replaced by the linear map that the basis takes it for (SPEC 5.6);
* choices: their scores are the same whether they share their prompt, where the model can, or not;
* the whole: how well the gradient by all cores agrees with back-propagation through the model as it is.
"""

from __future__ import annotations

import copy
import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from protocol.errors import OperatorError
from protocol.subspace.basis_file import Bases
from sfnode.training.calibration import calibrate
from sfnode.training.calibration.residual_writers import writers_of
from sfnode.training.dense_estimate import row_gradients
from sfnode.training.estimator import Estimator
from sfnode.training.model import layer_probe
from sfnode.training.model.folding import fold_weights
from sfnode.training.model.loading import empty_model, load_causal_lm
from sfnode.training.model.tensor_groups import TensorGroup, attach, places, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.candidates import batch_of
from sfnode.training.task.encoding import Example, TaskData, read_task
from tests.architectures.tiny_configs import tiny_config
from tests.support.found_bases import dense_bases
from tests.support.tiny_models import model_manifest, tiny_tokenizer, write_reviews
from tests.training.brute_force import EPOCHS, SEED, STEP, dense_gradients, some_coefficients, unquantised
from tests.training.test_dense_estimate import a_core, side, some_texts, some_words

_CPU: Final = torch.device("cpu")
_DIRECT: Final = 0.5  # least cosine on the direct path: experts may follow the last of the layers, or a norm
_VIEW: Final = {torch.float64: 1e-7, torch.float32: 1e-3}  # largest difference of losses, in those that the core made
_SLOPE: Final = {torch.float64: 1e-3, torch.float32: 3e-2}  # of finite differences, in the largest


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found.

    Attributes:
        kind: dense, drawn, refused or wrong; no core beside back-propagation and no reason in words is wrong.
        layers: with a core, their names without numbers.
        direct: cosine with the gradient by the direct path, the least of both tasks.
        whole: cosine with the whole gradient, with label words and with plain text.
        reason: why not, or what is wrong.
    """

    kind: str
    layers: tuple[str, ...] = ()
    direct: float = 0.0
    whole: tuple[float, ...] = ()
    reason: str = ""


def verdict_of(kind: str) -> Verdict:
    """Of the architecture of the model type ``kind``. Whatever is raised but OperatorError is a fault."""
    try:
        model = loaded(kind)
        tensors = trainable_tensors(model)
        shared = SharedModel(model)
    except OperatorError as error:
        return Verdict(kind="refused", reason=str(error))
    if fault := _choice_fault(shared) or _drawn_fault(copy.deepcopy(model)):
        return Verdict(kind="wrong", reason=fault)
    writers = writers_of(shared, tensors)
    if not writers:
        assert calibrate(shared, tensors, some_words(), 8, 8) is None
        return Verdict(kind="drawn", reason="no linear layer is found to write to the residual stream")
    layers = tuple(dict.fromkeys(_layer(each.name) for each in writers))
    faults, direct, whole = [], [], []
    for data in (some_words(), some_texts()):
        checked = DenseCheck(shared, data)
        faults += checked.faults()
        direct.append(checked.direct())
        whole.append(checked.whole())
    if min(direct) < _DIRECT:
        faults.append(f"agrees with the direct path to {min(direct):.2f} only")
    return Verdict(
        kind="wrong" if faults else "dense",
        layers=layers,
        direct=round(min(direct), 3),
        whole=tuple(round(each, 2) for each in whole),
        reason="; ".join(faults),
    )


def _choice_fault(shared: SharedModel) -> str:
    """What is wrong with the scores of candidates that share their prompt; empty when nothing is."""
    drawn = iter(layer_probe.probe_tokens(shared.model, 1, 100)[0].tolist())
    candidates = tuple(tuple(itertools.islice(drawn, size)) for size in (3, 1, 4))
    examples = [
        Example(tokens=tuple(itertools.islice(drawn, size)), label=1, candidates=candidates) for size in (9, 40)
    ]
    data = TaskData(label_tokens=())
    with torch.inference_mode():
        found, expected = (
            shared.scores(batch, ()).loss for batch in (shared.batch(data, examples), batch_of(data, examples, 1, _CPU))
        )
    error = float((found - expected).abs().max())
    return "" if error <= _VIEW[shared.dtype] else f"choices: {error:.1e} is wrong"


def _layer(name: str) -> str:
    return ".".join(part for part in name.removesuffix(".weight").split(".")[-2:] if not part.isdigit())


def loaded(kind: str) -> PreTrainedModel:
    """A tiny random model, saved and loaded as sfnode does it, in double precision where it computes in that."""
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            _save_random_model(kind, folder)
            loaded_model: Any = load_causal_lm(folder, _CPU, torch.float32)
        except OperatorError as error:
            raise OperatorError(str(error).replace(f"{folder} ", "").replace(str(folder), "")) from error
    return _widest(loaded_model)


def _save_random_model(kind: str, folder: Path) -> None:
    config = tiny_config(kind)
    config.save_pretrained(folder)
    empty_model(folder)
    make: Any = AutoModelForCausalLM  # carries no types
    model = make.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    config.save_pretrained(folder)  # of a model of texts and images, not of its texts alone


def _widest(model: Any) -> PreTrainedModel:
    """The model in double precision, or as it is: fused experts and some states know none."""
    model.double()
    try:
        with torch.no_grad():
            model(input_ids=torch.arange(6).view(2, 3) + 3, use_cache=False)
    except (RuntimeError, ValueError, TypeError, AttributeError, AssertionError, LookupError):
        model.float()
    model.requires_grad_(requires_grad=False)
    result: PreTrainedModel = model
    return result


def _drawn_fault(model: PreTrainedModel) -> str:
    """What is wrong with the estimate along drawn directions of all linear layers; empty when nothing is."""
    plain = copy.deepcopy(model)
    manifest = model_manifest(
        model, [TensorGroup.LINEAR], task={"max_tokens": 32}, core="rademacher", directions=4, rank=4, alpha_exp=-20,
        epsilon_exp=-6,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        reviews = write_reviews(Path(name) / "reviews.jsonl")
        data = read_task(tiny_tokenizer(), manifest.task, reviews, reviews)
    session = Estimator(SharedModel(model), Bases(manifest), data)
    for epoch in EPOCHS:
        session.set_coefficients(epoch, some_coefficients(manifest, epoch))
    found = torch.tensor(unquantised(session, SEED, STEP))
    expected = torch.tensor(dense_gradients(plain, Bases(manifest), session))
    error, size = float((found - expected).abs().max()), float(expected.abs().max())
    return "" if error <= _SLOPE[plain.dtype] * size else f"drawn directions: {error:.1e} of {size:.1e} is wrong"


class DenseCheck:
    """Compares a dense core of one task with back-propagation."""

    def __init__(self, shared: SharedModel, data: TaskData) -> None:
        self._shared, self._data = shared, data
        self._bases, _ = dense_bases(shared, data)
        attach(shared.model, self._bases.manifest.tensors, shared.pass_context)
        self._rows = batch_of(data, data.examples, 1, _CPU)
        shared.pass_context.read_at_last = frozenset()  # back-propagation needs all tokens

    def faults(self) -> list[str]:
        """What is wrong with a core that moves."""
        core = a_core(self._bases) // 20
        still, moved = self._gradients(core * 0), self._gradients(core)
        found = [] if all(bool(each.isfinite().all()) for each in moved[:2]) else ["gradients are not finite"]
        folded = fold_weights(self._bases, {0: core}, self._shared.switch.base)
        with self._shared.switch.using(dict(folded)), torch.inference_mode():
            loss = self._shared.scores(self._rows, self._data.label_tokens).loss
        error, size = float((loss - moved[2]).abs().max()), float((moved[2] - still[2]).abs().max())
        if size <= 0 or error > _VIEW[self._shared.dtype] * max(size, 1e-2):
            found.append(f"view: {error:.1e} of {size:.1e} is wrong")
        return found

    def direct(self) -> float:
        """The largest cosine of a core's gradient with back-propagation, where the last norm is a linear map."""
        with self._straight():
            zeros = a_core(self._bases) * 0
            return max(map(_cosine, self._by_core(zeros), self._back_propagated()))

    def whole(self) -> float:
        """The cosine of the gradient by all cores with back-propagation through the model as it is."""
        ours, exact = self._by_core(a_core(self._bases) * 0), self._back_propagated()
        return _cosine(*(torch.cat([each.flatten() for each in side]) for side in (ours, exact)))

    def _gradients(self, core: Any) -> tuple[Tensor, Tensor, Tensor]:
        d, h, loss = row_gradients(self._shared, self._bases, core, self._rows, self._data.label_tokens)
        return d.clone(), torch.cat(h, dim=1), loss.clone()

    def _by_core(self, core: Any) -> list[Tensor]:
        d, h, _ = self._gradients(core)
        return [d.T @ each for each in torch.split(h, self._bases.manifest.method.rank, dim=1)]

    def _back_propagated(self) -> list[Tensor]:
        """The gradient of the sum of the losses by each core."""
        shared, known = self._shared, places(self._shared.model)
        cores, handles = [], []
        for number, tensor in enumerate(self._bases.manifest.tensors):
            basis = self._bases.of(0, number)
            u = side(basis.u, basis.u_exp).to(shared.loss_dtype)
            v = side(basis.v, basis.v_exp).to(shared.loss_dtype)
            core = torch.zeros(u.shape[1], v.shape[1], dtype=u.dtype, requires_grad=True)
            cores.append(core)
            added = _adder(u, v, core)
            handles.append(known[tensor.name].module.register_forward_hook(added))
        with shared.pass_context.carrying({}, 1, self._rows.tokens.numel()):
            loss = shared.scores(self._rows, self._data.label_tokens).loss.sum()
        for handle in handles:
            handle.remove()
        # zeros for a core that does not reach the loss
        return list(torch.autograd.grad(loss, cores, materialize_grads=True, allow_unused=True))

    @contextmanager
    def _straight(self) -> Iterator[None]:
        """Put the linear map that a basis takes it for in place of the norm before the head."""
        shared, norm = self._shared, self._shared.final_norm
        if norm is None:
            yield
            return
        name = next(name for name, module in shared.model.named_modules() if module is norm)
        parent, _, attribute = name.rpartition(".")
        owner = shared.model.get_submodule(parent)
        setattr(owner, attribute, _Gain(shared.norm_gain().to(shared.dtype)))
        try:
            yield
        finally:
            setattr(owner, attribute, norm)


class _Gain(nn.Module):
    """Multiplies a stream as a norm does one of size one."""

    def __init__(self, gain_H: Tensor) -> None:
        super().__init__()
        self.weight = gain_H  # some models ask their norm for its dtype

    def forward(self, x: Tensor, *_others: object) -> Tensor:
        return x * self.weight


def _adder(u: Tensor, v: Tensor, core: Tensor) -> Any:
    return lambda _module, inputs, output: output + (inputs[0] @ v @ core.T @ u.T).view_as(output)


def _cosine(one: Tensor, other: Tensor) -> float:
    return float((one * other).sum() / (one.norm() * other.norm()).clamp_min(1e-30))
