"""Check the header of a GGUF file before a library reads it: the file must hold all that the header promises.

The library trusts every length and every count in the file. An array of 2^60 numbers would exhaust the memory.
Source of the format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from protocol.errors import OperatorError
from sfnode.storage import disk

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)  # version 1 had other lengths, and no model of today uses it
_HEADER_BYTES_MAX = 1 << 26  # the largest vocabulary, 262,144 tokens, takes some 10 MB
_ENTRIES_MAX = 1 << 21  # tokens, scores, types and merges of it; the library makes an object of each
_TENSORS_MAX = 1 << 17
_DIMENSIONS_MAX = 4
_ALIGNMENT = 32  # of files that name none
_ALIGNMENT_KEY = b"general.alignment"

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_STRING, _ARRAY, _UINT32 = 8, 9, 4
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def check_header(path: Path) -> int:
    """Return the number of weights in a file; OperatorError unless it holds all that its header names.

    It takes milliseconds to a second.
    """
    disk.check_is_content(path)
    total = path.stat().st_size
    if not total:
        raise OperatorError(f"{path} is empty: it is no GGUF file")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Walk(path, data).run()


@dataclass(slots=True)
class _Walk:
    """Reads a header from its begin to its end."""

    path: Path
    data: mmap.mmap
    offset: int = 0
    entries: int = 0
    alignment: int = field(default=_ALIGNMENT)

    def run(self) -> int:
        """Return the number of weights. OperatorError."""
        if self._take(len(_MAGIC)) != _MAGIC:
            raise self._refusal("it does not begin as one")
        version = self._u32()
        if version not in _VERSIONS:
            raise self._refusal(f"version {version} is not read, only {' and '.join(map(str, _VERSIONS))}")
        tensors, fields = self._u64(), self._u64()
        self._count(tensors, _TENSORS_MAX, "tensors")
        self._count(fields, _ENTRIES_MAX, "fields")
        for _ in range(fields):
            self._field()
        found = sorted(self._tensor() for _ in range(tensors))
        first = -(-self.offset // self.alignment) * self.alignment
        taken = 0  # end of the tensors so far; otherwise a small file could name the same megabyte 100,000 times
        for begin, end, name, _ in found:
            if first + end > len(self.data):
                behind = first + end - len(self.data)
                raise self._refusal(f"tensor {name!r} ends {behind} bytes behind the file's end")
            if begin < taken:
                raise self._refusal(f"tensor {name!r} shares its bytes with another one")
            taken = end
        return sum(weights for _, _, _, weights in found)

    def _field(self) -> None:
        key, kind = self._string(), self._u32()
        if key == _ALIGNMENT_KEY and kind == _UINT32:
            self.alignment = self._u32()
            if self.alignment == 0 or self.alignment & (self.alignment - 1):
                raise self._refusal(f"its alignment, {self.alignment}, is not a power of two")
            return
        count = 1
        if kind == _ARRAY:
            kind, count = self._u32(), self._u64()
            self.entries += count
            self._count(self.entries, _ENTRIES_MAX, "values in arrays")
        if kind == _STRING:
            for _ in range(count):
                self._string()
        elif kind in _SCALAR_BYTES:
            self._take(count * _SCALAR_BYTES[kind])
        else:
            raise self._refusal(f"a field is of type {kind}, which is not known")

    def _tensor(self) -> tuple[int, int, str, int]:
        """Return the place of a tensor's bytes after the header, begin and end, its name, and its number of weights."""
        name = self._string().decode("utf-8", "replace")[:200]
        dimensions = self._u32()
        self._count(dimensions, _DIMENSIONS_MAX, f"dimensions in {name!r}")
        weights = 1
        for _ in range(dimensions):
            weights *= self._u64()
        kind, begin = self._u32(), self._u64()
        try:
            block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
        except (ValueError, KeyError):
            raise self._refusal(f"tensor {name!r} is of type {kind}, which is not known") from None
        return begin, begin + -(-weights // block) * block_bytes, name, weights

    def _string(self) -> bytes:
        return self._take(self._u64())

    def _u32(self) -> int:
        return int(_U32.unpack(self._take(_U32.size))[0])

    def _u64(self) -> int:
        return int(_U64.unpack(self._take(_U64.size))[0])

    def _take(self, count: int) -> bytes:
        end = self.offset + count
        if end > len(self.data):
            raise self._refusal(f"its header promises {count} bytes at {self.offset}, the file has {len(self.data)}")
        if end > _HEADER_BYTES_MAX:
            raise self._refusal(f"its header is longer than {_HEADER_BYTES_MAX} bytes")
        begin, self.offset = self.offset, end
        return self.data[begin:end]

    def _count(self, found: int, most: int, what: str) -> None:
        if found > most:
            raise self._refusal(f"it names {found} {what}, more than {most}")

    def _refusal(self, reason: str) -> OperatorError:
        return OperatorError(f"{self.path} is not a GGUF file that can be read: {reason}")
