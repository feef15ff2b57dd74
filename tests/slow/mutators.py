"""Ways to damage bytes; the same seed damages them the same way."""

from collections.abc import Callable, Sequence
from random import Random

Mutator = Callable[[bytes, Random], bytes]

_MARKERS = bytes([0, 1, 2, 0x0C, 0x15, 0x18, 0x19, 0x1C, 0x7F, 0x80, 0xF9, 0xFC, 0xFF])
"""Bytes with a meaning in most formats: ends, headers of thrift's fields and lists, bounds of numbers."""
_EDGES = (0, 1, 2, 127, 128, 255, 256, 1 << 15, 1 << 16, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _replace(data: bytes, at: int, length: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + length :]


def _flip_bit(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data))
    return _replace(data, at, 1, bytes([data[at] ^ 1 << rng.randrange(8)]))


def _flip_bits(data: bytes, rng: Random) -> bytes:
    for _ in range(rng.choice([2, 4, 30])):
        data = _flip_bit(data, rng)
    return data


def _add_to_byte(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data))
    return _replace(data, at, 1, bytes([(data[at] + rng.choice([-2, -1, 1, 2, 16])) % 256]))


def _set_length(data: bytes, rng: Random) -> bytes:
    width = rng.choice([4, 8])
    new = (rng.choice(_EDGES) % (1 << 8 * width)).to_bytes(width, "little")
    return _replace(data, rng.randrange(len(data)), width, new)


def _inflate_list(data: bytes, rng: Random) -> bytes:
    header = bytes([0xF0 | rng.choice([1, 3, 5, 6, 8, 9, 12])])
    return _replace(data, rng.randrange(len(data)), 1, header + _varint(rng.choice(_EDGES)))


def _nest(data: bytes, rng: Random) -> bytes:
    deep = bytes([rng.choice([0x1C, 0x19, 0x7B, 0x5B, 0x28])]) * rng.choice([20, 200, 20_000])
    return _replace(data, rng.randrange(len(data)), 0, deep)


def _repeat(data: bytes, rng: Random) -> bytes:
    at, length = rng.randrange(len(data)), rng.choice([1, 2, 9, 70, 500])
    return _replace(data, at, 0, data[at : at + length] * rng.choice([1, 1, 2, 50]))


def _move(data: bytes, rng: Random) -> bytes:
    source, target, length = rng.randrange(len(data)), rng.randrange(len(data)), rng.choice([1, 4, 30, 200])
    return _replace(data, target, length, data[source : source + length])


def _become_noise(data: bytes, rng: Random) -> bytes:
    at = rng.choice([0, rng.randrange(len(data))])
    return data[:at] + rng.randbytes(min(len(data) - at, 5000))


GENTLE: dict[str, Mutator] = {
    "flip bit": _flip_bit,
    "set byte": lambda data, rng: _replace(data, rng.randrange(len(data)), 1, bytes([rng.randrange(256)])),
    "add to byte": _add_to_byte,
}
"""These leave most of the data as it was."""

MUTATORS: dict[str, Mutator] = GENTLE | {
    "flip bits": _flip_bits,
    "set marker": lambda data, rng: _replace(data, rng.randrange(len(data)), 1, bytes([rng.choice(_MARKERS)])),
    "cut off": lambda data, rng: data[: rng.randrange(len(data))],
    "set length": _set_length,
    "inflate number": lambda data, rng: _replace(data, rng.randrange(len(data)), 1, _varint(rng.choice(_EDGES))),
    "inflate list": _inflate_list,
    "nest": _nest,
    "delete": lambda data, rng: _replace(data, rng.randrange(len(data)), rng.choice([1, 2, 9, 70, 500]), b""),
    "repeat": _repeat,
    "move": _move,
    "insert": lambda data, rng: _replace(data, rng.randrange(len(data)), 0, rng.randbytes(rng.choice([1, 4, 30]))),
    "noise": _become_noise,
}


def splice(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """Join the start of one value and the end of another."""
    other = rng.choice(others)
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]


def damage(data: bytes, rng: Random, others: Sequence[bytes], times: Sequence[int] = (1, 1, 2, 4)) -> bytes:
    """Damage data once or a few times."""
    for _ in range(rng.choice(times)):
        if data:
            how = rng.choice([*MUTATORS, "splice"])
            data = splice(data, rng, others) if how == "splice" else MUTATORS[how](data, rng)
    return data
