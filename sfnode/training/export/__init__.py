"""Door: `export_model`. Write the trained model for other programs: a Hugging Face folder, or a LoRA adapter."""

from sfnode.training.export.adapter import export_adapter
from sfnode.training.export.hugging_face_folder import check_free, export_model
