"""Change each weight as soon as it has been read, so that memory holds at most one unchanged weight.

This uses transformers' interface for libraries that quantise (`HfQuantizer`). `quantised` and `weights_digest` decide
which weights change, and into what.
"""

from collections.abc import Callable, Iterable

from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import ConversionOps
from transformers.quantizers.auto import register_quantizer
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from protocol.errors import OperatorError

_METHOD = "sfnode"  # its name within transformers

Choose = Callable[[PreTrainedModel], Iterable[str]]
Change = Callable[[str, Tensor], Tensor]
Converted = dict[str, Tensor | list[Tensor]]  # a list has one entry here


class AsRead(QuantizationConfigMixin):  # type: ignore[misc]  # mypy reads no transformers
    """Configures `load_causal_lm` to replace the tensors that ``choose`` names by ``change(name, tensor)``.

    Attributes:
        fault: the first exception of ``change``. transformers continues after it, and finally reports only that
            something failed.
    """

    def __init__(self, choose: Choose, change: Change) -> None:
        self.quant_method = _METHOD  # theirs are an enum; ours is registered below
        self.choose = choose
        self.change = change
        self.fault: Exception | None = None

    def __deepcopy__(self, memo: object) -> "AsRead":
        """Return itself: transformers copies configurations, but the caller looks for the fault in this one."""
        return self


@register_quantizer(_METHOD)
class _Changer(HfQuantizer):  # type: ignore[misc]
    """Answers transformers' questions during loading. Leaves no trace of itself in the model's configuration."""

    quantization_config: AsRead
    is_trainable = False

    def is_serializable(self) -> bool:
        return False

    def _process_model_before_weight_loading(self, model: PreTrainedModel, **_: object) -> None:
        """Choose the names; the model has no weights yet."""
        self._names = frozenset(self.quantization_config.choose(model))

    def param_needs_quantization(self, model: PreTrainedModel, param_name: str, **_: object) -> bool:
        return param_name in self._names

    def get_quantize_ops(self) -> ConversionOps:
        return _Change(self._names, self.quantization_config)

    def _process_model_after_weight_loading(self, model: PreTrainedModel, **_: object) -> None:
        self.remove_quantization_config(model)


class _Change(ConversionOps):  # type: ignore[misc]
    """Applies the change as the last step between the file and the model."""

    def __init__(self, names: frozenset[str], config: AsRead) -> None:
        self._names = names
        self._config = config

    def convert(  # called with names only
        self, input_dict: Converted, *, model: PreTrainedModel, **_: object
    ) -> Converted:
        """Return the changed tensors by name; ``input_dict`` holds what one or several tensors of the file became."""
        try:
            return {name: self._changed(model, name, value) for name, value in input_dict.items()}
        except (ValueError, RuntimeError, OperatorError) as error:
            self._config.fault = self._config.fault or error
            raise

    def _changed(self, model: PreTrainedModel, name: str, value: Tensor | list[Tensor]) -> Tensor | list[Tensor]:
        if name not in self._names:
            return value
        weight = value[0] if isinstance(value, list) else value
        wanted = model.state_dict()[name].shape
        if weight.shape != wanted:  # transformers does not check shapes where a quantiser is at work
            raise ValueError(f"{name} has the shape {tuple(weight.shape)}, not {tuple(wanted)}")
        return self._config.change(name, weight)
