"""Ways to damage bytes; the same seed damages them the same way."""

from collections.abc import Callable, Sequence
from random import Random

Mutator = Callable[[bytes, Random], bytes]
_MARKERS = bytes([0, 1, 2, 0x0C, 0x15, 0x18, 0x19, 0x1C, 0x7F, 0x80, 0xF9, 0xFC, 0xFF])
"""Bytes with a meaning in most formats: ends, headers of thrift's fields and lists, bounds of numbers."""
_EDGES = (0, 1, 127, 128, 255, 256, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1)


def _replace(data: bytes, rng: Random, length: int, new: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + new + data[at + length :]


def flip_bit(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _flip_bits(data: bytes, rng: Random) -> bytes:
    for _ in range(rng.choice([2, 4, 30])):
        data = flip_bit(data, rng)
    return data


def _inflate(data: bytes, rng: Random) -> bytes:
    """Write a large number as thrift does, or as four or eight bytes; sometimes as the length of a list."""
    number, varint = rng.choice(_EDGES), bytearray()
    if rng.random() < 0.3:
        width = rng.choice([4, 8])
        return _replace(data, rng, width, (number % (1 << 8 * width)).to_bytes(width, "little"))
    while number > 0x7F:
        varint.append(number & 0x7F | 0x80)
        number >>= 7
    header = bytes([0xF0 | rng.choice([1, 3, 5, 6, 8, 9, 12])]) if rng.random() < 0.5 else b""
    return _replace(data, rng, 1, header + bytes([*varint, number]))


def _nest(data: bytes, rng: Random) -> bytes:
    return _replace(data, rng, 0, bytes([rng.choice([0x1C, 0x19, 0x7B, 0x5B, 0x28])]) * rng.choice([20, 200, 20_000]))


def _move(data: bytes, rng: Random) -> bytes:
    """Copy some bytes to another place, over others or between them, once or often."""
    at, length = rng.randrange(len(data)), rng.choice([1, 4, 30, 200])
    return _replace(data, rng, rng.choice([0, length]), data[at : at + length] * rng.choice([1, 1, 1, 50]))


GENTLE: list[Mutator] = [
    flip_bit,
    lambda data, rng: _replace(data, rng, 1, bytes([rng.randrange(256)])),
    lambda data, rng: _replace(data, rng, 1, bytes([rng.choice(_MARKERS)])),
]
"""These leave most of the data as it was."""

MUTATORS: list[Mutator] = [
    *GENTLE,
    _flip_bits,
    _inflate,
    _nest,
    _move,
    lambda data, rng: data[: rng.randrange(len(data))],
    lambda data, rng: _replace(data, rng, rng.choice([1, 2, 9, 70, 500]), b""),
    lambda data, rng: _replace(data, rng, 0, rng.randbytes(rng.choice([1, 4, 30]))),
    lambda data, rng: _replace(data, rng, len(data), rng.randbytes(min(len(data), 5000))),
]


def damage(data: bytes, rng: Random, others: Sequence[bytes], times: Sequence[int] = (1, 1, 2, 4)) -> bytes:
    """Damage data once or a few times, sometimes by joining its start and the end of another value."""
    for _ in range(rng.choice(times)):
        if data and rng.random() < 0.06:
            other = rng.choice(others)
            data = data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]
        elif data:
            data = rng.choice(MUTATORS)(data, rng)
    return data
