"""Amounts as people write them: sizes ("1.5 GB"), rates ("500 kB/s", "4 Mbit/s"), noise ("1.5"), times ("4h")."""

import re

from protocol.errors import OperatorError

_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?)\s*(ki|mi|gi|k|m|g)b", re.IGNORECASE)
_RATE = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?)\s*(ki|mi|gi|k|m|g)(b|bit)/s", re.IGNORECASE)
_TIME = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*(min|h|d)", re.IGNORECASE)
_SECONDS = {"min": 60, "h": 3_600, "d": 86_400}
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_NUMBER_MIN, _NUMBER_MAX = 0.01, 10_000.0
_PROGRAM_MAX = 128
RATE_BYTES_MIN = 16_000  # below it, updates of others are passed on too late


def parse_size(text: str) -> int:
    """Return the bytes of a text such as "1.5 GB" or "800MiB". OperatorError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or not (size := int(float(found[1]) * _UNITS[found[2].lower()])):
        raise OperatorError(f"{text!r} is not a size: write 800MB or 1.5GB, for instance")
    return size


def parse_rate(text: str) -> int:
    """Return the bytes per second of a text such as "500 kB/s" or "4 Mbit/s". OperatorError."""
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise OperatorError(f"{text!r} is not a rate: write 500kB/s or 4Mbit/s, for instance")
    rate = int(float(found[1]) * _UNITS[found[2].lower()]) // (8 if found[3].lower() == "bit" else 1)
    if rate < RATE_BYTES_MIN:
        raise OperatorError(f"{text!r} is too little for a node: give {RATE_BYTES_MIN // 1000} kB/s or more")
    return rate


def parse_noise(text: str) -> float:
    """Return a multiplier of noise, or a limit of epsilon, of 0.01 to 10,000. OperatorError."""
    number = float(text) if _NUMBER.fullmatch(text.strip()) else 0.0
    if not _NUMBER_MIN <= number <= _NUMBER_MAX:
        raise OperatorError(f"{text!r} is not a number of {_NUMBER_MIN} ... {_NUMBER_MAX:,.0f}: write 1 or 0.5")
    return number


def parse_time(text: str) -> float:
    """Return the seconds of a text such as "4h", "90min" or "1.5 d". OperatorError."""
    found = _TIME.fullmatch(text.strip())
    if found is None or not (seconds := float(found[1]) * _SECONDS[found[2].lower()]):
        raise OperatorError(f"{text!r} is not a time: write 4h, 90min or 2d, for instance")
    return seconds


def parse_program(text: str) -> str:
    """Return the name of a program, as the system shows it, without its folder. OperatorError."""
    name = text.strip()
    if not name or len(name) > _PROGRAM_MAX or not name.isprintable() or "/" in name:
        raise OperatorError(f"{text!r} is not a program's name: write blender or steam, for instance, without a folder")
    return name
