"""Search of a crawl's list of blocks (``cluster.idx``), synthetic and of the real size: 1.2 million lines, 104 MB."""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from zlib import crc32

from benchmarks.crawls import CRAWL
from benchmarks.report import table
from catalogue.cdx.cluster import BlockList, parse_blocks
from catalogue.cdx.list_search import USUAL, ClusterSearch, Predictor, predict_from
from catalogue.cdx.usual_shares import PAGES
from catalogue.source.open import FolderSource
from catalogue.source.rate_limit import Clock, Limiter, Policy
from catalogue.source.retry import PoliteSource
from catalogue.surt.interval import exact_interval
from tests.support.block_lists import write_list

_BLOCKS, _FEWER_BLOCKS, _SEARCHES = 1_200_000, 300_000, 100
_SUBSETS = {"warc": (0.78, 10), "crawldiagnostics": (0.18, 2), "robotstxt": (0.04, 1)}
"""Share of the rows, and row groups a shard, of each subset."""
_ROWS = 2985
"""Rows of a block of 3,000 lines that are in the columnar index."""

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
_BEGINNINGS = """
0517 1170 1776 2023 2xfz 3sit 52jx 6688 7cit 9101 aaro abor aces acti addj adsr agen aiki aizw akti alch alkh allt
alte amer amor anda ange answ apam appp arch arme arti asia astu aubr auto ayan bago ball barl bato beas begl bent
best beta bgfo bigg bina bitt blac blog blue boho born brac brig bryn buil busi bvil cai8 camb cana canu cari cash
cbct cele cent cfkj char chew chin chua cipa clas clip cnaa code cols comp cono conw cori coup crea csfe curi cxsi
dail data dayt decu dena desk dian digi disc dj-p dnse dogs donw down dram drma dspl dunc e-da eagl ecbl educ egyp
elda eliv emcd endl epai eque esse euro evil expe eyac fant fati fest find fith fleu flyi ford four free frg frwe fun-
futu game gaym geco geor gett giga glob gmil gokp goop grac gree gryp guar gunt gymb halo hard haym heal hele henr
hg00 hima hnda home hopt hote hous hqmo huge hydr iamm idc0 ikti imgd incm info inre inte ipad irri iwaa jama jd jelg
ji jiux joel jost jspa jump jxca kama kast keai kent kham kill kita klpq kool kuma la-p lake lapt lazy leco lenh lfhg
life lion live logh lord love luck mabl magh make mana mari mark mash matt mbpl mdm- medi mell mere metr micr mili
mini mixi mobi mode momt mons morn moto mrbr mt musc mxga myfr mysh nair nasi nave neop nets newp nfbr nick nipp nord
nove numb nydc obdm ocot offi olcu on4t onew ooqu orgc otmm owlc pads pana para pass pbas pedi pere pg phil piad pink
plai play poke pore port powe prem prim prog prov publ purl qcat qq quee r-s- raia raqu rcrs rebi regi rent revi rich
rjdu rock roni rrpo runb ryse saig salt sara scap scre seac seek semb serv sh-g shdx shop sici silv simt skha smar snp
sola sonn sout spel spor sqxh stai sten stor stud sud supe suth syge taii tang tatt team tecn tele terb tfcd thea thec
thef them ther thet this tias tink toas tomt topb tova trad trav trim truy tume twan ubun umjo unit urba user vaca
veba verm vibe viet vira vivr vn88 vuba wall warm webb wegr west whip wilc wind wixx work wtse xbiz xinn yanu yida
yote your yund zbay zenf zhet zoom
"""
"""Beginnings of names in ``com``, from a random sample that OpenDNS placed in the public domain."""
_STARTS = _BEGINNINGS.split()
_SYLLABLES = [f"{first}{vowel}" for first in "bcdfghklmnprstvwz" for vowel in "aeio"]
_HOSTS = ("", "", "", "www,", "blog,", "shop,", "m,", "en,", "forum,", "news,")
_FOLDERS = ("news", "product", "products", "category", "tag", "blog", "forum", "wiki", "en", "de", "index.php", "item")
_ESCAPED = ("cn,", "gr,", "jp,", "ru,")
"""Top-level domains of sites with many percent escapes in their keys."""
_BIG = 4000
"""Sites that fill several blocks."""


def main(*, full: bool) -> None:
    """Measure and print; ``full`` measures a list of the real size."""
    data = make_list(_BLOCKS if full else _FEWER_BLOCKS)
    started = time.process_time()
    blocks = parse_blocks(CRAWL, data)
    seconds = time.process_time() - started
    other = parse_blocks(CRAWL, make_list(len(blocks) * 24 // 25, seed=2))

    def share(key: bytes) -> float:
        return bisect_left(range(len(other)), key, key=other.key) / len(other)

    cases: list[tuple[str, bytes, Predictor]] = [
        ("nothing", data, USUAL),
        ("nothing; keys divided as published", make_list(len(blocks), published=True), USUAL),
        ("row groups of the crawl", data, predict_from(row_groups(blocks))),
        ("row groups of warc alone", data, predict_from(row_groups(blocks, ["warc"]), ["warc"])),
        ("the list of another crawl", data, Predictor(share)),
    ]
    table(
        f"Exact keys in a list of {len(blocks):,} blocks, {len(data) / 1e6:.0f} MB, parsed in {seconds:.1f} s; "
        f"average and maximum of {_SEARCHES} searches, each with a second one",
        ["known before", "requests", "kB", "with the block", "requests of the second", "kB", "CPU ms a search"],
        [_row(*case) for case in cases],
    )


def row_groups(blocks: BlockList, subsets: Iterable[str] = tuple(_SUBSETS)) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield bounds and rows of the row groups that the columnar index of a generated list would have."""
    shards = blocks.shard(len(blocks) - 1) + 1
    for share, count in map(_SUBSETS.__getitem__, subsets):
        borders = [len(blocks) * number // (shards * count) for number in range(shards * count + 1)]
        for start, end in pairwise(borders):
            if start < end:
                yield blocks.key(start), blocks.key(end - 1), int(share * _ROWS * (end - start))


@contextmanager
def in_folder(data: bytes) -> Iterator[FolderSource]:
    """Write a list to a temporary folder."""
    with TemporaryDirectory() as folder:
        write_list(Path(folder), data, CRAWL)
        yield FolderSource(Path(folder))


def search_costs(folder: FolderSource, blocks: BlockList, predict: Predictor, searches: int) -> Iterator[list[int]]:
    """Yield requests, bytes, and bytes with the block, of a search for a seeded key and of a second one after it."""
    rng = Random(1)
    for _ in range(searches):
        source = PoliteSource(folder, Limiter(Policy(), clock=Clock()))
        search = ClusterSearch(source, CRAWL)
        search.predict = predict
        cost = []
        for _ in range(2):
            interval = exact_interval(blocks.key(rng.randrange(len(blocks))) + b"x")
            before = source.requests, source.bytes
            found = search.find(interval)
            searched = source.bytes - before[1]
            read = sum(len(found.extent(place)) for place in found.blocks_for(interval))
            cost += [source.requests - before[0], searched, searched + read]
        yield cost


def _row(name: str, data: bytes, predict: Predictor) -> list[str | float]:
    blocks = parse_blocks(CRAWL, data)
    with in_folder(data) as folder:
        started = time.process_time()
        costs = [*search_costs(folder, blocks, predict, _SEARCHES)]
        seconds = time.process_time() - started
    first, first_bytes, with_block, second, second_bytes, _ = zip(*costs, strict=True)
    sizes = ([size / 1000 for size in each] for each in (first_bytes, with_block, second_bytes))
    kilobytes, with_blocks, second_kilobytes = sizes
    values = [_shown(each) for each in (first, kilobytes, with_blocks, second, second_kilobytes)]
    return [name, *values, f"{seconds / _SEARCHES / 2 * 1000:.1f}"]


def _shown(values: Iterable[float]) -> str:
    listed = list(values)
    return f"{sum(listed) / len(listed):.1f}, {max(listed):.0f}"


def make_list(blocks: int, *, seed: int = 1, shards: int = 300, published: bool = False) -> bytes:
    """Generate a list; lists of other seeds have the same large sites and similar shares of top-level domains.

    Args:
        blocks: number of lines.
        seed: a list of another seed is like one of another crawl.
        shards: number of shards.
        published: keys are divided among domains as published figures say, or up to a third more or less of each.
    """
    big, rng, make_site = _big_sites(published=published), Random(seed), _make_site(published=published)
    weights = list(accumulate((1 + place) ** -0.8 * rng.uniform(0.7, 1.4) for place in range(_BIG)))
    firsts = sorted(
        f"{_url(rng.choices(big, cum_weights=weights)[0] if rng.random() < 0.35 else make_site(rng), rng)} "
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


@cache
def _big_sites(*, published: bool) -> list[str]:
    rng, make_site = Random("sites"), _make_site(published=published)
    return [make_site(rng) for _ in range(_BIG)]


@cache
def _make_site(*, published: bool) -> Callable[[Random], str]:
    tlds: dict[str, float] = _TLDS
    if published:
        rng = Random("shares")
        tlds = {label.decode().rstrip(","): pages * rng.lognormvariate(0, 0.1) for label, pages in PAGES.items()}
    names, shares = list(tlds), list(accumulate(tlds.values()))

    def make_site(rng: Random) -> str:
        if published:
            name = rng.choice(_STARTS) + "".join(rng.choices(_SYLLABLES, k=rng.randint(0, 3)))
        else:
            name = "".join(rng.choices(_SYLLABLES, k=rng.randint(2, 5)))
        if rng.random() < 0.15:
            name += f"-{rng.choice(_SYLLABLES)}{rng.choice(_SYLLABLES)}"
        tld = rng.choices(names, cum_weights=shares)[0]
        return f"{tld},{name}{',' if (host := rng.choice(_HOSTS)) else ''}{host.rstrip(',')}"

    return make_site


def _url(site: str, rng: Random) -> str:
    """Return a key of a site; the keys of a site and of a top-level domain have similar lengths."""
    style = crc32(site.encode())
    folders = "".join(f"/{rng.choice(_FOLDERS)}" for _ in range(rng.randint(0, style % 3)))
    words = ["".join(rng.choices(_SYLLABLES, k=3)) for _ in range(rng.randint(0, style % 7))]
    if site.startswith(_ESCAPED):
        words = ["".join(f"%d0%{ord(letter):02x}" for letter in word) for word in words[:2]]
    query = f"?id={rng.randrange(10**6)}" if rng.random() < 0.3 else ""
    return f"{site}){folders}/{'-'.join(words)}{query}"
