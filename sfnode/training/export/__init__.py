"""Door: `export_model`. The trained model for other programs: a Hugging Face folder, or a LoRA adapter."""

from sfnode.training.export.model_folder import export_adapter, export_model

__all__ = ["export_adapter", "export_model"]
