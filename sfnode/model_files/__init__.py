"""Door: `resolve_model`. Finds, fetches and checks a model's files on this disk against a run's manifest. No torch."""

from sfnode.model_files import model_folder as model_folder, pieces as pieces, verify as verify
from sfnode.model_files.conversion import (
    REFUSED as REFUSED,
    TOTAL_FILE as TOTAL_FILE,
    WeightForm as WeightForm,
    clear_left_overs as clear_left_overs,
)
from sfnode.model_files.fetched_model import FetchedModel as FetchedModel
from sfnode.model_files.model_cache import cache_folder as cache_folder
from sfnode.model_files.model_folder import (
    CONFIG_FILE as CONFIG_FILE,
    INDEX_FILE as INDEX_FILE,
    SINGLE_FILE as SINGLE_FILE,
    ModelFolder as ModelFolder,
    read_config as read_config,
    weight_files as weight_files,
)
from sfnode.model_files.packages import is_same_package as is_same_package
from sfnode.model_files.pieces import PartialFile as PartialFile, PieceIndex as PieceIndex
from sfnode.model_files.resolve import find_model_folder as find_model_folder, resolve_model as resolve_model
from sfnode.model_files.watched_process import OnProgress as OnProgress
