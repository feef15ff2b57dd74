"""Synthetic lists of blocks (``cluster.idx``) of the real size: 1.2 million lines, 104 MB."""

from itertools import accumulate
from random import Random

_TLDS = {
    "com": 46,
    "org": 8,
    **dict.fromkeys(("de", "net", "ru"), 6),
    **dict.fromkeys(("fr", "jp", "uk"), 3),
    **dict.fromkeys(("br", "it", "nl", "pl"), 2),
    **dict.fromkeys(("cn", "cz", "edu", "es"), 1.5),
    **dict.fromkeys(("au", "ca", "ch", "eu", "info", "io", "se", "us"), 1.0),
    **dict.fromkeys(("at", "be", "dk", "gov", "gr", "hu", "vn"), 0.7),
}
_TLD_NAMES, _TLD_SHARES = list(_TLDS), list(accumulate(_TLDS.values()))
_SYLLABLES = [f"{first}{vowel}" for first in "bcdfghklmnprstvwz" for vowel in "aeio"]
_HOSTS = ("", "", "", "www,", "blog,", "shop,", "m,", "en,", "forum,", "news,")
_FOLDERS = ("news", "product", "products", "category", "tag", "blog", "forum", "wiki", "en", "de", "index.php", "item")
_BIG = 4000
"""Sites that fill several blocks."""


def make_list(blocks: int, *, seed: int = 1, shards: int = 300) -> bytes:
    """Generate a list; lists of other seeds have the same large sites and similar shares of top-level domains."""
    names, rng = Random("sites"), Random(seed)
    big = [_site(names) for _ in range(_BIG)]
    weights = list(accumulate((1 + place) ** -0.8 * rng.uniform(0.7, 1.4) for place in range(_BIG)))
    firsts = sorted(
        f"{rng.choices(big, cum_weights=weights)[0] if rng.random() < 0.35 else _site(rng)}){_path(rng)} "
        f"202208{rng.randint(7, 20):02}{rng.randrange(240000):06}"
        for _ in range(blocks)
    )
    each = -(-blocks // shards)
    lines, offset = [], 0
    for number, first in enumerate(firsts):
        offset = offset if number % each else 0
        length = max(20_000, int(rng.gauss(195_000, 30_000)))
        lines.append(f"{first}\tcdx-{number // each:05}.gz\t{offset}\t{length}\t{number + 1}\n")
        offset += length
    return "".join(lines).encode()


def _site(rng: Random) -> str:
    name = "".join(rng.choices(_SYLLABLES, k=rng.randint(2, 5)))
    if rng.random() < 0.15:
        name += f"-{rng.choice(_SYLLABLES)}{rng.choice(_SYLLABLES)}"
    tld = rng.choices(_TLD_NAMES, cum_weights=_TLD_SHARES)[0]
    return f"{tld},{name}{',' if (host := rng.choice(_HOSTS)) else ''}{host.rstrip(',')}"


def _path(rng: Random) -> str:
    folders = "".join(f"/{rng.choice(_FOLDERS)}" for _ in range(rng.randint(0, 2)))
    words = "-".join("".join(rng.choices(_SYLLABLES, k=3)) for _ in range(rng.randint(0, 3)))
    query = f"?id={rng.randrange(10**6)}" if rng.random() < 0.3 else ""
    return f"{folders}/{words}{query}"
