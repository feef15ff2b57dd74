"""Ways to damage bytes, by chance and so that the same seed damages them the same way."""

from collections.abc import Callable, Sequence
from random import Random

Mutator = Callable[[bytes, Random, Sequence[bytes]], bytes]
"""From bytes, chance, and other bytes of the same kind, which are not empty."""

_TELLING = bytes([0, 1, 2, 0x0C, 0x15, 0x18, 0x19, 0x1C, 0x7F, 0x80, 0xF9, 0xFC, 0xFF])
"""Bytes that mean something in most forms: ends, headers of thrift's fields and lists, the ends of numbers."""
_EDGES = (0, 1, 2, 127, 128, 255, 256, 1 << 15, 1 << 16, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63) - 1)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _with(data: bytes, at: int, length: int, new: bytes) -> bytes:
    """Some bytes replaced by others."""
    return data[:at] + new + data[at + length :]


def flip_a_bit(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data))
    return _with(data, at, 1, bytes([data[at] ^ 1 << rng.randrange(8)]))


def flip_bits(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    for _ in range(rng.choice([2, 4, 30])):
        data = flip_a_bit(data, rng, others)
    return data


def set_a_byte(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    return _with(data, rng.randrange(len(data)), 1, bytes([rng.randrange(256)]))


def set_a_telling_byte(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    return _with(data, rng.randrange(len(data)), 1, bytes([rng.choice(_TELLING)]))


def add_to_a_byte(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data))
    return _with(data, at, 1, bytes([(data[at] + rng.choice([-2, -1, 1, 2, 16])) % 256]))


def cut_off(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data))]


def lie_about_a_length(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """A number of four or eight bytes becomes another, as lengths and offsets are written in fixed places."""
    width = rng.choice([4, 8])
    new = (rng.choice(_EDGES) % (1 << 8 * width)).to_bytes(width, "little")
    return _with(data, rng.randrange(len(data)), width, new)


def inflate_a_number(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """A byte becomes a large number of thrift's."""
    return _with(data, rng.randrange(len(data)), 1, _varint(rng.choice(_EDGES)))


def inflate_a_list(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """A byte becomes the header of a list that claims to have many elements."""
    kind = rng.choice([1, 3, 5, 6, 8, 9, 12])
    return _with(data, rng.randrange(len(data)), 1, bytes([0xF0 | kind]) + _varint(rng.choice(_EDGES)))


def nest(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """Structs, or lists, within each other."""
    deep = bytes([rng.choice([0x1C, 0x19, 0x7B, 0x5B, 0x28])]) * rng.choice([20, 200, 20_000])
    at = rng.randrange(len(data))
    return _with(data, at, 0, deep)


def delete(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    return _with(data, rng.randrange(len(data)), rng.choice([1, 2, 9, 70, 500]), b"")


def repeat(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    at, length = rng.randrange(len(data)), rng.choice([1, 2, 9, 70, 500])
    return _with(data, at, 0, data[at : at + length] * rng.choice([1, 1, 2, 50]))


def move(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """A piece of it takes the place of another."""
    source, target, length = rng.randrange(len(data)), rng.randrange(len(data)), rng.choice([1, 4, 30, 200])
    return _with(data, target, length, data[source : source + length])


def splice(data: bytes, rng: Random, others: Sequence[bytes]) -> bytes:
    """The beginning of one and the end of another."""
    other = rng.choice(others)
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]


def insert_noise(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    return _with(data, rng.randrange(len(data)), 0, rng.randbytes(rng.choice([1, 4, 30])))


def become_noise(data: bytes, rng: Random, _: Sequence[bytes]) -> bytes:
    """All of it, or from somewhere on."""
    at = rng.choice([0, rng.randrange(len(data))])
    return _with(data, at, len(data), rng.randbytes(min(len(data) - at, 5000)))


MUTATORS: dict[str, Mutator] = {
    each.__name__: each
    for each in (
        flip_a_bit,
        flip_bits,
        set_a_byte,
        set_a_telling_byte,
        add_to_a_byte,
        cut_off,
        lie_about_a_length,
        inflate_a_number,
        inflate_a_list,
        nest,
        delete,
        repeat,
        move,
        splice,
        insert_noise,
        become_noise,
    )
}
