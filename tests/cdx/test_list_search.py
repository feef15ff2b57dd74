"""Search of a list of blocks over HTTP: few small requests, and never a wrong or short answer."""

import re
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cluster import make_list, row_groups
from catalogue.cdx.cluster import BlockList, parse_blocks
from catalogue.cdx.known_lines import KnownLines, first_not_below
from catalogue.cdx.list_search import PROBE, USUAL, ClusterSearch, Predictor, predict_from
from catalogue.commoncrawl.crawls import SUBSETS
from catalogue.errors import BadCdx, FileChanged
from catalogue.source.byte_ranges import FileVersion
from catalogue.surt.interval import EVERYTHING, KeyInterval, exact_interval, prefix_interval
from tests.support.block_lists import BLOCKS, CRAWL, PATH, served
from tests.support.cdx_indexes import CdxIndex

Predicting: TypeAlias = Callable[[BlockList], Predictor]


@pytest.fixture(params=[lambda _: USUAL, lambda blocks: predict_from(row_groups(blocks))], ids=["new", "predicted"])
def predicting(request: pytest.FixtureRequest) -> Predicting:
    found: Predicting = request.param
    return found


def found(part: BlockList, interval: KeyInterval) -> list[tuple[int, bytes]]:
    return [(part.number(place), part.first(place)) for place in part.blocks_for(interval)]


def sample(blocks: BlockList, count: int, seed: int = 1) -> list[KeyInterval]:
    rng = Random(seed)
    keys = [blocks.key(rng.randrange(len(blocks))) for _ in range(count)]
    return [exact_interval(key + rng.choice([b"", b"x"])) for key in keys]


def check(search: ClusterSearch, blocks: BlockList, interval: KeyInterval) -> None:
    assert found(search.find(interval), interval) == found(blocks, interval)


def test_few_requests_find_a_url_without_anything_stored(listed: bytes, blocks: BlockList) -> None:
    with served(listed) as server:
        for first, second in zip(sample(blocks, 4), sample(blocks, 4, 2), strict=True):
            search = server.search()
            check(search, blocks, first)
            requests, size = server.cost()
            assert requests <= 7  # the end, bisections, and the rest
            assert size <= 300_000
            check(search, blocks, second)
            requests, size = server.cost()
            assert requests <= 5
            check(search, blocks, first)
            assert server.cost() == (0, 0)


def test_later_searches_start_with_what_was_stored(listed: bytes, blocks: BlockList) -> None:
    (one, other) = sample(blocks, 2)
    with served(listed) as server:
        search = server.search()
        check(search, blocks, one)
        server.cost()
        stored = [(fragment.start, fragment.data) for fragment in search.known]
        again = server.search(KnownLines(CRAWL, search.known.version, stored))
        check(again, blocks, one)
        assert server.cost() == (0, 0)
        check(again, blocks, other)
        check(search, blocks, other)
        exchanges = server.server.settle()
        half = len(exchanges) // 2
        assert [each.range_header for each in exchanges[:half]] == [each.range_header for each in exchanges[half:]]


@pytest.mark.in_part(3)
@pytest.mark.parametrize("wrong", [0.01, 0.9, 1.001, 1.02, 3, 1_000_000])
def test_wrong_estimates_of_the_size_cost_few_requests(listed: bytes, blocks: BlockList, wrong: float) -> None:
    share, size, _ = predict_from(row_groups(blocks))
    assert size is not None
    last = [exact_interval(blocks.key(BLOCKS - place)) for place in (1, 2, 500, 1500)]
    with served(listed) as server:
        for interval in [*sample(blocks, 3), *last, exact_interval(b"zz"), exact_interval(b"a")]:
            check(server.search(predict=Predictor(share, int(wrong * size))), blocks, interval)
            requests, received = server.cost()
            assert requests <= 4
            assert received <= 600_000


@pytest.mark.parametrize("data", [b"", b"com,a)/ 20220801000000\tcdx-00000.gz\t0\t1\t1"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_estimated_sizes_of_invalid_lists(data: bytes, share: float) -> None:
    with served(data) as server:
        for size in (10, 1 << 20, 1 << 40):
            search = server.search(predict=Predictor(lambda _: share, size))
            with pytest.raises(BadCdx, match=r"is empty|is not the end of a line"):
                search.find(exact_interval(b"com,a)/"))
            assert server.cost()[0] <= 2


def test_predict_from_row_groups() -> None:
    share, size, _ = predict_from([(b"c", b"d", 60_000), (b"a", b"b", 30_000), (b"c", b"x", 30_000)])
    keys = [b"", b"a", b"aa", b"b", b"bb", b"c", b"cc", b"e", b"y"]
    assert [40 * share(key) for key in keys] == [0, 0, 5, 5, 10, 10, 25, 35, 40]
    assert size == 40 * len("a 20220101000000\tcdx-00000.gz\t100000000\t200000\t100000\n")
    share, size, _ = predict_from([(b"a" * 9, b"c" * 11, 3000), (b"d" * 110, b"e" * 130, 3000)])
    assert size
    assert share(b"d") * size < 70
    share, size, _ = predict_from([])
    assert (share(b"a"), size) == (0, 0)


def test_subsets_that_are_not_stored_are_estimated() -> None:
    groups = [(b"a", b"b", 3_000_000)]
    complete = predict_from(groups)
    assert complete.size
    estimated = [predict_from(groups, subsets).size for subsets in (SUBSETS[:1], SUBSETS[:2], SUBSETS, ["unknown"])]
    assert [size and round(complete.size / size, 2) for size in estimated] == [0.81, 0.97, 1, 1]


WRONG: dict[str, Callable[[bytes], float]] = {
    "always 0": lambda _: 0.0,
    "always 1": lambda _: 1.0,
    "beyond": lambda _: 7.0,
    "below": lambda _: -7.0,
    "by length": lambda key: len(key) / 100,
}


@pytest.mark.in_part(4)
@pytest.mark.parametrize(("size", "rough"), [(None, False), (2_000_000, False), (None, True)])
@pytest.mark.parametrize("share", WRONG)
def test_wrong_predictions_cost_requests_only(
    listed: bytes, blocks: BlockList, share: str, size: int | None, *, rough: bool
) -> None:
    with served(listed) as server:
        for interval in sample(blocks, 3):
            check(server.search(predict=Predictor(WRONG[share], size, rough)), blocks, interval)
            assert server.cost()[0] <= (9 if rough else 11)  # bisection needs 7


def test_reads_all_lines_of_a_large_interval(listed: bytes, blocks: BlockList) -> None:
    with served(listed) as server:
        search = server.search()
        interval = prefix_interval(b"de,")
        place = search.locate(interval)
        assert place is not None
        before = server.cost()
        check(search, blocks, interval)
        requests, size = server.cost()
        assert requests <= 12
        assert size < len(place) < before[1] + size
        check(search, blocks, EVERYTHING)
        assert [(fragment.start, fragment.data) for fragment in search.known] == [(0, listed)]


def test_reads_a_complete_list_once(listed: bytes, blocks: BlockList) -> None:
    with served(listed) as server:
        check(server.search(), blocks, EVERYTHING)
        requests, size = server.cost()
        assert requests == 3  # the end, all before it, and the list of files
        assert size <= len(listed) + 1100


def test_reads_lines_that_two_requests_divide() -> None:
    lines = (f"a)/{n:04}{2000 * 'x'} 20220801000000\tcdx-00000.gz\t{9 * n}\t9\t{n + 1}\n" for n in range(9000))
    data = "".join(lines).encode()
    with served(data, shards=1) as server:
        check(server.search(), parse_blocks(CRAWL, data), EVERYTHING)
        requests, size = server.cost()
        assert requests == 5
        assert size <= len(data) + 4096


def test_locates_nothing_between_keys(listed: bytes) -> None:
    with served(listed) as server:
        assert server.search().locate(exact_interval(b"com,aaaa)/")) is None


@pytest.mark.parametrize("count", [1, 2, 3, 50, 300])
def test_short_lists(count: int) -> None:
    data = make_list(count, shards=1)
    complete = parse_blocks(CRAWL, data)
    keys = [complete.key(place) for place in {0, count // 2, count - 1}]
    intervals = [exact_interval(key + end) for key in keys for end in (b"", b"x")]
    with served(data, shards=1) as server:
        search = server.search()
        for interval in (*intervals, exact_interval(b"a"), exact_interval(b"zz"), EVERYTHING, KeyInterval(b"", b"a")):
            check(search, complete, interval)
        requests, size = server.cost()
        assert requests <= 2 + len(data) // PROBE
        assert size <= len(data) + 300  # and a part of a line, and the list of files


@given(data=st.data())
def test_finds_the_same_blocks_as_in_the_complete_list(indexes: list[CdxIndex], data: st.DataObject) -> None:
    index = data.draw(st.sampled_from(indexes))
    complete = index.parsed()
    size = len(index.cluster)
    keys = [complete.key(place) for place in range(len(complete))]
    starts = [0] + [at + 1 for at in range(size) if index.cluster[at : at + 1] == b"\n"]
    cuts = sorted(data.draw(st.sets(st.sampled_from(starts), max_size=6)) | {0, size})
    known = KnownLines(index.crawl, FileVersion(size, None))
    order = data.draw(st.permutations(list(pairwise(cuts))))
    for start, end in order:
        known.add(start, index.cluster[start:end])
        for key in data.draw(st.lists(st.sampled_from(keys), max_size=3)):
            border = known.border(key)
            expected = first_not_below(index.cluster, key)
            if isinstance(border, int):
                assert border == expected
            else:
                assert border.start <= expected <= border.end
    assert [fragment.data for fragment in known] == [index.cluster]


def test_keys_longer_than_a_probe(predicting: Predicting) -> None:
    lines = make_list(600, shards=1).splitlines(keepends=True)
    for place in (0, 150, 300, 301, 450, 599):
        key, _, rest = lines[place].partition(b" ")
        lines[place] = key + b"~" * (3 * PROBE) + b" " + rest
    data = b"".join(lines)
    complete = parse_blocks(CRAWL, data)
    with served(data, shards=1) as server:
        predict = predicting(complete)
        for place in (*range(0, 600, 37), 0, 150, 301, 599):
            check(server.search(predict=predict), complete, exact_interval(complete.key(place)))


def test_rejects_endless_lines() -> None:
    lines = make_list(600).splitlines(keepends=True)
    data = b"".join([*lines[:300], b"com,a)/" + b"x" * (4 << 20), *lines[300:]])
    with served(data) as server, pytest.raises(BadCdx, match="has a line of more than 1,048,576 bytes"):
        server.search().find(exact_interval(b"com,m"))


def test_captures_of_a_url_in_many_blocks(predicting: Predicting) -> None:
    lines = make_list(4000, shards=4).splitlines(keepends=True)
    key = lines[1500].partition(b" ")[0]
    lines[1500:2500] = [key + b" 20220801000000" + line[line.index(b"\t") :] for line in lines[1500:2500]]
    data = b"".join(lines)
    complete = parse_blocks(CRAWL, data)
    with served(data, shards=4) as server:
        interval = exact_interval(key)
        assert len(complete.blocks_for(interval)) == 1001
        check(server.search(predict=predicting(complete)), complete, interval)


def swapped(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    middle = len(lines) // 2
    return b"".join([*lines[: middle - 500], *lines[middle:], *lines[middle - 500 : middle]])


LIST_FAULTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "is empty"),
    "truncated": (lambda data: data[:-1], "is not the end of a line"),
    "halves swapped": (lambda data: data[len(data) // 2 :] + data[: len(data) // 2], ""),
    "unsorted": (swapped, "the key is less"),
    "not a list": (lambda data: b"<p>not found</p>\n" * (len(data) // 17), "is not a line of a list of blocks"),
    "no line feeds": (lambda data: data.replace(b"\n", b" ")[:-1] + b"\n", "more than 1,048,576 bytes|not a line"),
    "zeros inside": (lambda data: data[: len(data) // 3] + bytes(len(data) // 3) + data[-(len(data) // 3) :], "byte"),
}


@pytest.mark.parametrize("fault", LIST_FAULTS)
def test_rejects_damaged_lists(listed: bytes, fault: str) -> None:
    change, message = LIST_FAULTS[fault]
    with served(change(listed)) as server, pytest.raises(BadCdx, match=message or None) as raised:
        server.search().find(EVERYTHING)
    assert PATH in str(raised.value)


@pytest.mark.in_part(3)
@pytest.mark.parametrize("fault", ["halves swapped", "unsorted", "zeros inside", "no line feeds"])
def test_searches_of_damaged_lists_are_errors_or_right(
    listed: bytes, blocks: BlockList, fault: str, predicting: Predicting
) -> None:
    # Neighbouring lines have consecutive numbers. A wrong last line is found by its shard, or by the size of the shard.
    data, rejected = LIST_FAULTS[fault][0](listed), 0
    predict = predicting(blocks)
    with served(data) as server:
        near = [exact_interval(blocks.key(BLOCKS // 2 + place)) for place in range(-9, 9, 2)]
        for interval in [*sample(blocks, 5), *near]:
            try:
                check(server.search(predict=predict), blocks, interval)
            except BadCdx:
                rejected += 1
    assert rejected >= 4


def test_rejects_a_list_that_ends_between_shards(listed: bytes) -> None:
    cut = listed[: listed.index(b"\tcdx-00200.gz")]
    cut = cut[: cut.rindex(b"\n") + 1]
    with served(cut) as server, pytest.raises(BadCdx, match="ends with shard 199; the crawl has 300"):
        server.search().find(exact_interval(b"zz"))
    with served(cut, shards=200) as server:
        assert len(server.search().find(exact_interval(b"zz"))) > 0


def test_a_list_that_changes_between_probes_is_an_error(
    listed: bytes, blocks: BlockList, predicting: Predicting
) -> None:
    with served(listed) as server:
        search = server.search(predict=predicting(blocks))
        check(search, blocks, sample(blocks, 1)[0])
        for changed in (listed[:-10] + listed[-9:], listed.replace(b"\t190", b"\t191", 1)):
            server.files[PATH] = changed
            with pytest.raises(FileChanged):
                search.find(exact_interval(sample(blocks, 9, seed=7)[8].start))
        server.files[PATH] = listed
        check(search, blocks, sample(blocks, 9, seed=7)[8])


@pytest.mark.parametrize("fragments", [[(0, 10), (5, 20)], [(0, 10), (10, 20), (10, 20)], [(0, 10), (0, 10)]])
def test_rejects_stored_lines_that_overlap(listed: bytes, fragments: list[tuple[int, int]]) -> None:
    lines = listed.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(21)]
    with pytest.raises(BadCdx, match=re.escape(PATH)):
        KnownLines(
            CRAWL,
            FileVersion(len(listed), None),
            [(starts[first], listed[starts[first] : starts[last]]) for first, last in fragments],
        )


def test_rejects_stored_lines_of_another_list(listed: bytes) -> None:
    other = make_list(600, seed=3)
    middle = other.index(b"\n", len(other) // 2) + 1
    known = KnownLines(CRAWL, FileVersion(len(listed), None))
    known.add(0, listed[: listed.index(b"\n", 5000) + 1])
    with pytest.raises(BadCdx, match=r"not in order|not the next"):
        known.add(10_000, other[middle : other.index(b"\n", middle + 5000) + 1])
