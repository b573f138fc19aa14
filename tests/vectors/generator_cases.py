"""Vectors of hashing and of the generator (SPEC 2.1, 2.2, 3)."""

from __future__ import annotations

import numpy as np

from protocol.crypto.hashing import Author, RunId, hash_fields, key_of, seed_of
from protocol.crypto.keys import Signer
from protocol.subspace.philox import Words, philox4x32, signs_of_words
from tests.support.ledgers import signer
from tests.vectors.notation import Case, Document, case, document, key_text, signs_text, word_texts

RUN = RunId(bytes(range(32)))
_KEYS = (0, 1, 0xFFFFFFFF, 1 << 32, 0x0123456789ABCDEF, (1 << 64) - 1)


def hashing() -> Document:
    """hashing.json"""
    return document("hash_fields, 64-bit keys and seeds: SPEC 2.1, 2.2", [*_hashes(), *_seeds()])


def _hashes() -> list[Case]:
    chosen: list[tuple[str, str, list[bytes]]] = [
        ("no field", "sfnode/example/1", []),
        ("example of SPEC 2.1", "sfnode/example/1", [b"", b"abc"]),
        ("the same bytes, divided elsewhere", "sfnode/example/1", [b"a", b"bc"]),
        ("the same bytes in one field", "sfnode/example/1", [b"abc"]),
        ("fields in another order", "sfnode/example/1", [b"abc", b""]),
        ("another domain", "sfnode/example/2", [b"", b"abc"]),
        ("all byte values", "sfnode/example/1", [bytes(range(256))]),
        ("a field longer than 255 bytes", "sfnode/example/1", [b"\xff" * 256, b"\x00"]),
    ]
    cases = []
    for name, domain, fields in chosen:
        given = {"domain": domain, "fields": [field.hex() for field in fields]}
        cases.append(case(f"hash: {name}", "hash_fields", given, {"digest": hash_fields(domain, *fields).hex()}))
        cases.append(case(f"key: {name}", "key_of", given, {"key": key_text(key_of(domain, *fields))}))
    return cases


def _seeds() -> list[Case]:
    authors = [Signer(bytes(32)).author, signer(1).author, Author(b"\xff" * 32)]
    runs = [RUN, RunId(bytes(32))]
    return [
        case(
            f"seed: run {run.hex()[:4]}, author {author.hex()[:4]}, step {step}",
            "seed",
            {"run_id": run.hex(), "author": author.hex(), "step": step},
            {"seed": key_text(seed_of(run, author, step))},
        )
        for run in runs
        for author in authors
        for step in (0, 7, 255, 256, 1_048_575)
    ]


def generator() -> Document:
    """generator.json"""
    return document("Philox4x32-10, words and signs: SPEC 3", [*_blocks(), *_words(), *_signs()])


def _blocks() -> list[Case]:
    chosen = {
        "zeros": ([0] * 4, [0] * 2),
        "ones": ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2),
        "digits of pi": ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]),
        **{f"counter word {i} alone": ([int(i == j) for j in range(4)], [0, 0]) for i in range(4)},
        **{f"key word {i} alone": ([0] * 4, [int(i == j) for j in range(2)]) for i in range(2)},
        "round keys that wrap": ([1, 2, 3, 4], [0x9E3779B9, 0xBB67AE85]),
    }
    return [
        case(
            f"block: {name}",
            "philox",
            {"counter": word_texts(counter), "key": word_texts(key)},
            {"block": word_texts(_block(counter, key))},
        )
        for name, (counter, key) in chosen.items()
    ]


def _block(counter: list[int], key: list[int]) -> list[int]:
    x0, x1, x2, x3 = (np.array([word], dtype=np.uint32) for word in counter)
    k0, k1 = (np.array([word], dtype=np.uint32) for word in key)
    return [int(word) for word in philox4x32((x0, x1, x2, x3), (k0, k1))[0]]


def _stream(key: int, stream: int, direction: int, count: int) -> Words:
    """Words of the blocks with counters (i, direction, 0, stream)."""
    split = [key & 0xFFFFFFFF, key >> 32]
    blocks = [_block([index, direction, 0, stream], split) for index in range(-(-count // 4))]
    return np.array(blocks, dtype=np.uint32).reshape(-1)[:count]


def _words() -> list[Case]:
    chosen = [(key, 0, 0, 5) for key in _KEYS]
    chosen += [(0x0123456789ABCDEF, 2, 0, 6), (0x0123456789ABCDEF, 3, 0, 1), (0x0123456789ABCDEF, 1, 1, 8)]
    chosen += [(0x0123456789ABCDEF, 2, 1023, 4), (0x0123456789ABCDEF, 3, 0, 17)]
    return [
        case(f"words: {_label(*row)}", "words", _given(*row), {"words": word_texts(list(_stream(*row)))})
        for row in chosen
    ]


def _signs() -> list[Case]:
    chosen = [(0x0123456789ABCDEF, 2, 0, count) for count in (1, 8, 31, 32, 33, 128, 129)]
    chosen += [(key, 1, 3, 40) for key in _KEYS]
    return [
        case(
            f"signs: {_label(*row)}",
            "signs",
            _given(*row),
            {"signs": signs_text(signs_of_words(_stream(*row[:3], -(-row[3] // 32)), row[3]).tolist())},
        )
        for row in chosen
    ]


def _label(key: int, stream: int, direction: int, count: int) -> str:
    return f"key {key_text(key)}, stream {stream}, direction {direction}, {count} of them"


def _given(key: int, stream: int, direction: int, count: int) -> dict[str, object]:
    return {"key": key_text(key), "stream": stream, "direction": direction, "count": count}
