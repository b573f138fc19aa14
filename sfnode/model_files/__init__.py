"""Door: `resolve_model`. Finds, fetches and checks a model's files on this disk against a run's manifest. No torch."""

from sfnode.model_files import model_folder, pieces, verify
from sfnode.model_files.conversion import REFUSED, TOTAL_FILE, WeightForm, clear_left_overs
from sfnode.model_files.model_cache import FetchedModel, cache_folder
from sfnode.model_files.model_folder import CONFIG_FILE, INDEX_FILE, SINGLE_FILE, ModelFolder, read_config, weight_files
from sfnode.model_files.packages import is_same_package
from sfnode.model_files.pieces import PartialFile, PieceIndex
from sfnode.model_files.resolve import find_model_folder, resolve_model
from sfnode.model_files.watched_process import OnProgress
