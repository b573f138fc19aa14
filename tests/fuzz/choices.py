"""Fuzz input read as a sequence of choices: every byte string means something, and a small change changes little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Takes choices from the front of ``data``; zeros when it has run out."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_left(self) -> bool:
        """Whether any byte is left."""
        return self._position < len(self._data)

    def byte(self) -> int:
        """0 ... 255."""
        position = self._position
        self._position += 1
        return self._data[position] if position < len(self._data) else 0

    def below(self, bound: int) -> int:
        """0 ... bound - 1, of as many bytes as the bound needs."""
        value = 0
        for _ in range(((bound - 1).bit_length() + 7) // 8):
            value = value << 8 | self.byte()
        return value % bound

    def one_in(self, bound: int) -> bool:
        """True for one of ``bound`` values of the next byte."""
        return self.byte() % bound == 1

    def pick(self, options: Sequence[T]) -> T:
        """One of ``options``."""
        return options[self.below(len(options))]

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes, filled up with zeros."""
        part = self._data[self._position : self._position + count]
        self._position += count
        return part.ljust(count, b"\0")

    def short(self) -> bytes:
        """0 ... 255 bytes, their number first."""
        return self.take(self.byte())

    def rest(self) -> bytes:
        """All bytes that are left."""
        part = self._data[self._position :]
        self._position = len(self._data)
        return part

    def changed(self, original: bytes) -> bytes:
        """``original`` with one small fault: a byte replaced, removed, inserted, or the end cut off."""
        how, at = self.byte() % 4, self.below(len(original) + 1)
        if how == 0:
            return original[:at] + bytes([self.byte()]) + original[at + 1 :]
        if how == 1:
            return original[:at] + original[at + 1 :]
        if how == 2:
            return original[:at] + bytes([self.byte()]) + original[at:]
        return original[:at]
