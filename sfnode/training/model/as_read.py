"""Changes each weight as soon as it has been read: no more than one is in memory as it was.

This is transformers' own way for libraries that quantise (`HfQuantizer`). What is chosen, and what becomes of a weight,
is the business of `quantised`, and of `content`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import ConversionOps
from transformers.quantizers.auto import register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from protocol.errors import OperatorError

_METHOD: Final = "sfnode"  # its name within transformers

Choose: TypeAlias = Callable[[PreTrainedModel], Iterable[str]]
Change: TypeAlias = Callable[[str, Tensor], Tensor]
Converted: TypeAlias = dict[str, Tensor | list[Tensor]]  # a list has one, when it comes here


class AsRead(QuantizationConfigMixin):
    """For `load_causal_lm`: the tensors whose names ``choose`` gives become ``change(name, tensor)``.

    Attributes:
        fault: why that failed; transformers goes on then, and at the end says no more than that something did.
    """

    def __init__(self, choose: Choose, change: Change) -> None:
        self.quant_method = _METHOD  # type: ignore[assignment]  # theirs are an enum; ours is registered below
        self.choose = choose
        self.change = change
        self.fault: Exception | None = None

    def __deepcopy__(self, memo: object) -> AsRead:
        """Itself: transformers copies configurations, and the fault is to be found in this one."""
        return self


@register_quantizer(_METHOD)
class _Changer(HfQuantizer):
    """What transformers asks while it loads. The model comes out as if it knew nothing of this."""

    quantization_config: AsRead
    is_trainable = False

    def is_serializable(self) -> bool:
        return False

    def _process_model_before_weight_loading(self, model: PreTrainedModel, **_: object) -> None:
        """The model has no weights yet."""
        self._names = frozenset(self.quantization_config.choose(model))

    def param_needs_quantization(self, model: PreTrainedModel, param_name: str, **_: object) -> bool:
        return param_name in self._names

    def get_quantize_ops(self) -> ConversionOps:
        return _Change(self._names, self.quantization_config)

    def _process_model_after_weight_loading(self, model: PreTrainedModel, **_: object) -> None:
        self.remove_quantization_config(model)  # type: ignore[no-untyped-call]


class _Change(ConversionOps):
    """The last step of a tensor's way from the file into the model."""

    def __init__(self, names: frozenset[str], told: AsRead) -> None:
        self._names = names
        self._told = told

    def convert(  # type: ignore[override]  # called with names only
        self, input_dict: Converted, *, model: PreTrainedModel, **_: object
    ) -> Converted:
        """``input_dict``: what one tensor or several of the file have become, by name."""
        try:
            return {name: self._changed(model, name, value) for name, value in input_dict.items()}
        except (ValueError, RuntimeError, OperatorError) as error:
            self._told.fault = self._told.fault or error
            raise

    def _changed(self, model: PreTrainedModel, name: str, value: Tensor | list[Tensor]) -> Tensor | list[Tensor]:
        if name not in self._names:
            return value
        weight = value[0] if isinstance(value, list) else value
        wanted = model.state_dict()[name].shape
        if weight.shape != wanted:  # transformers does not look where something is changed
            raise ValueError(f"{name} has the shape {tuple(weight.shape)}, not {tuple(wanted)}")
        return self._told.change(name, weight)
