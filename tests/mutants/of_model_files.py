"""Bugs of the model's door: what hostile files are refused by, and what keeps the model cache whole."""

from __future__ import annotations

from tests.mutants.detectors import Tests
from tests.mutants.mutant import Mutant
from tests.mutants.patch import Edit

_PICKLES = "sfnode.training.conversion.from_pickles"
_GGUF = "sfnode.training.conversion.gguf_header"
_PACKAGES = "sfnode.model_files.packages"
_RESOLVE = "sfnode.model_files.resolve"
_HOSTILE_TESTS = "tests/security/test_hostile_models.py::"
_PROMISES_MORE = _HOSTILE_TESTS + "test_gguf__promises_more_than_it_holds__is_refused_before_the_library_reads_it"
_CONVERSION_TESTS = "tests/model_files/test_conversion.py::"
_PACKAGE_TESTS = "tests/model_files/test_packages.py::"

HOSTILE_FILES = (
    Mutant(
        name="pickles-unpickled-in-full",
        breaks="code in a model's pickle is run",
        edits=(Edit(_PICKLES, "_tensors_in", "weights_only=True", "weights_only=False"),),
        detector=Tests((_HOSTILE_TESTS + "test_pickle__with_code__is_refused_and_not_run",)),
    ),
    Mutant(
        name="packed-parts-of-a-pickle",
        breaks="a pickle file that unpacks to a thousand times its size is read",
        edits=(
            Edit(
                _PICKLES,
                "_check_archive",
                "if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:",
                "if False:",
            ),
        ),
        detector=Tests((_HOSTILE_TESTS + "test_pickle__zip_bomb__is_refused_before_it_is_unpacked",)),
    ),
    Mutant(
        name="memory-shared-without-end",
        breaks="a thousand names for one piece of memory fill the disk when they are written",
        edits=(Edit(_PICKLES, "convert_pickles", "> _GROWTH_MAX * total + _SLACK_BYTES", "> 1 << 60"),),
        detector=Tests((_HOSTILE_TESTS + "test_pickle__many_names_for_one_memory__is_refused",)),
    ),
    Mutant(
        name="gguf-lengths-believed",
        breaks="a GGUF file's arrays may be of any length: its reader takes all memory",
        edits=(Edit(_GGUF, "_Walk._count", "if found > most:", "if False:"),),
        detector=Tests((_PROMISES_MORE,)),
    ),
    Mutant(
        name="gguf-tensors-anywhere",
        breaks="a tensor of a GGUF file may lie behind the file's end",
        edits=(Edit(_GGUF, "_Walk.run", "if first + end > len(self.data):", "if False:"),),
        detector=Tests((_PROMISES_MORE,)),
    ),
    Mutant(
        name="wheel-unpacks-without-end",
        breaks="a wheel of zeros fills the disk",
        edits=(Edit(_PACKAGES, "_copy", "if written > bytes_max:", "if False:"),),
        detector=Tests((_PACKAGE_TESTS + "test_package__bomb_of_zeros__is_refused_before_the_disk_is_full",)),
    ),
    Mutant(
        name="wheel-leads-anywhere",
        breaks="a file of a wheel is written outside the folder",
        edits=(
            Edit(_PACKAGES, "_copy", "if not all(part and is_plain_file_name(part) for part in parts):", "if False:"),
        ),
        detector=Tests((_PACKAGE_TESTS + "test_package__wheel_is_not_one_model__is_refused_and_leaves_nothing",)),
    ),
)

MODEL_CACHE = (
    Mutant(
        name="any-version-of-a-package",
        breaks="a run's model is taken from another version of its package",
        edits=(Edit(_PACKAGES, "parse_package", "if version and revision and version != revision:", "if False:"),),
        detector=Tests((_PACKAGE_TESTS + "test_package__malformed_or_of_two_versions__is_refused_before_pip_runs",)),
    ),
    Mutant(
        name="conversion-of-yesterday",
        breaks="a model that has changed since it was converted is loaded as it was",
        edits=(Edit(_RESOLVE, "_state_of", "str(status.st_size), str(status.st_mtime_ns)", '"", ""'),),
        detector=Tests((_CONVERSION_TESTS + "test_cache__source_has_changed__is_converted_again",)),
    ),
    Mutant(
        name="path-in-the-tokenizer",
        breaks="a tokenizer from a GGUF file says where it was made: another place, another file",
        edits=(Edit("sfnode.training.conversion.from_gguf", "convert_gguf", " if key not in _OF_THE_PLACE", ""),),
        detector=Tests((_CONVERSION_TESTS + "test_gguf__equal_input__gives_equal_bytes_wherever_it_lies",)),
    ),
    Mutant(
        name="pickles-before-safetensors",
        breaks="a pickle is read although there are safetensors",
        edits=(
            Edit(
                "sfnode.model_files.conversion",
                "form_of",
                "if files.has_safetensors(path):",
                "if files.is_decodable(path):",
            ),
        ),
        detector=Tests((_CONVERSION_TESTS + "test_pickles__beside_safetensors__are_not_looked_at",)),
    ),
    Mutant(
        name="weights-fetched-first",
        breaks="an interrupted download leaves weights without a tokenizer, which look like the whole model",
        edits=(
            Edit(
                "sfnode.model_files.hub",
                "_download",
                "    for name in sizes:\n        if files.is_definition(name):\n            fetch(name)\n",
                "",
            ),
            Edit(
                "sfnode.model_files.hub",
                "_download",
                "    folder, total = ",
                "    wanted = (*wanted, *(name for name in files.TOKENIZER_FILES if name in sizes))\n"
                "    folder, total = ",
            ),
        ),
        detector=Tests(("tests/model_files/test_hub.py::test_hub__answers__definition_comes_first_and_weights_last",)),
    ),
    Mutant(
        name="any-revision",
        breaks="an operator names a revision, and another one is trained",
        edits=(
            Edit(
                "sfnode.run.model_reference",
                "find_model",
                "if revision is not None and revision != manifest.model.revision:",
                "if False:",
            ),
        ),
        detector=Tests(("tests/run/test_model_reference.py::test_revision__another_one__is_refused",)),
    ),
)
