"""What a query does for conditions of polars, and which ones are left to polars."""

from datetime import UTC, date, datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from catalogue.commoncrawl.datasets import COMMON_CRAWL, define_dataset
from catalogue.commoncrawl.schema import SCHEMA
from catalogue.query.where import parse_where
from catalogue.scan.pushdown import Pushdown, push_down
from catalogue.surt.interval import KeyInterval, exact_interval, merge, prefix_interval
from catalogue.surt.pattern import parse_pattern

surtkey, url, host, status = (pl.col(name) for name in ("url_surtkey", "url", "url_host_name", "fetch_status"))
domain, time, crawl = pl.col("url_host_registered_domain"), pl.col("fetch_time"), pl.col("crawl")


def pushed(condition: pl.Expr) -> Pushdown:
    return push_down(condition, SCHEMA, COMMON_CRAWL)


WHERE = [
    (status == 200, '"fetch_status" = 200'),
    (pl.lit(200) <= status, '"fetch_status" >= 200'),
    (status != 200, '"fetch_status" <> 200'),
    (status.is_in([200, 404]), '"fetch_status" IN (200, 404)'),
    (status.is_between(200, 299), '("fetch_status" >= 200) and ("fetch_status" <= 299)'),
    (status.is_between(200, 300, closed="left"), '("fetch_status" >= 200) and ("fetch_status" < 300)'),
    (url == "it's", "\"url\" = 'it''s'"),
    (url.str.contains("a.b", literal=True), "contains(\"url\", 'a.b')"),
    (url.str.contains("blog/"), "contains(\"url\", 'blog/')"),
    (url.str.ends_with(".pdf"), "ends_with(\"url\", '.pdf')"),
    (url.is_null(), '"url" IS NULL'),
    (pl.col("fetch_redirect").is_not_null(), '"fetch_redirect" IS NOT NULL'),
    ((status == 200) | (url < "b") | (url > "c"), '("fetch_status" = 200) or ("url" < \'b\') or ("url" > \'c\')'),
    (~((status == 200) & (url < "b")), 'not (("fetch_status" = 200) and ("url" < \'b\'))'),
    (status.is_in([200]).not_(), 'not ("fetch_status" IN (200))'),
    (pl.when(status.is_null()).then(None).otherwise(status == 200), '"fetch_status" = 200'),
    (status.eq(pl.lit(200).alias("other")), '"fetch_status" = 200'),
]


@pytest.mark.parametrize(("condition", "sql"), WHERE, ids=lambda value: str(value)[:60])
def test_conditions_become_sql(condition: pl.Expr, sql: str) -> None:
    assert pushed(condition) == Pushdown(where=(sql,))


LEFT_TO_POLARS = [
    *(status + 1 == 200, status.cast(pl.Float64) > 199.5, status.cast(pl.String) == "200"),
    *(url.cast(pl.Int64, strict=False).is_null(), status == pl.col("url_port"), status.is_in([200, None])),
    *(status.is_in([]), status == pl.lit(None), url.str.to_lowercase() == "a", url.str.contains("^https")),
    *(url.str.contains("(?i)blog"), url.str.starts_with(host), url.is_in([str(number) for number in range(1001)])),
    *(url.eq_missing("a"), time.dt.year() == 2022, time < datetime(1900, 1, 1, tzinfo=UTC), time == date(2022, 1, 1)),
    *(pl.col("warc_record_id") == b"a", (status == 200) | (status + 1 == 200)),
    *(~(time < datetime(2022, 1, 1, tzinfo=UTC)), pl.lit(value=True)),
    pl.when(status == 200).then(True).otherwise(False),  # noqa: FBT003
    status.map_batches(lambda series: series == 200, return_dtype=pl.Boolean),
]


@pytest.mark.parametrize("condition", LEFT_TO_POLARS, ids=lambda value: str(value)[:60])
def test_other_conditions_are_left_to_polars(condition: pl.Expr) -> None:
    assert pushed(condition) == Pushdown()
    assert pushed(condition & (status > 100)) == Pushdown(where=('"fetch_status" > 100',))


def test_conditions_may_be_nested_deeply() -> None:
    deep = status == 200
    for number in range(45):
        deep = (deep & (url != str(number))) | (status == number)
    (sql,) = pushed(deep).where
    assert parse_where(sql).columns == ("fetch_status", "url")
    for _ in range(20):
        deep = ~deep
    assert pushed(deep) == Pushdown()


def keys(*texts: str) -> tuple[KeyInterval, ...]:
    return merge(interval for text in texts for interval in parse_pattern(text).intervals)


def of_host(*names: str) -> tuple[KeyInterval, ...]:
    return merge(prefix_interval(f"{name}{end}".encode()) for name in names for end in "):")


EXAMPLE = prefix_interval(b"com,example)/")
KEYS = [
    (surtkey == "com,example)/", (exact_interval(b"com,example)/"),)),
    (surtkey.is_in(["b", "a"]), (exact_interval(b"a"), exact_interval(b"b"))),
    (surtkey.str.starts_with("com,example)/"), (EXAMPLE,)),
    (surtkey.is_between(pl.lit("a"), pl.lit("b")), (KeyInterval(b"a", b"b\0"),)),
    ((surtkey >= "a") & (surtkey < "b"), (KeyInterval(b"a", b"b"),)),
    ((surtkey > "a") & (surtkey > "b") & (surtkey <= "c"), (KeyInterval(b"b\0", b"c\0"),)),
    ((surtkey < "b") | (surtkey > "c"), (KeyInterval(b"", b"b"), KeyInterval(b"c\0", b"\xff"))),
    ((surtkey < "b") & (surtkey > "c"), ()),
    (surtkey < "", ()),
    (surtkey.is_null(), ()),
    (surtkey.is_in([]), ()),
    (url == "https://www.Example.com/A/", keys("example.com/a")),
    (url.is_in(["https://example.com", "http://example.org/b?c=d"]), keys("example.com", "example.org/b?c=d")),
    (url.str.starts_with("https://example.com/a/../b"), of_host("com,example")),
    (domain == "example.com", keys("*.example.com")),
    (host.str.ends_with(".example.com"), keys("*.example.com")),
    (pl.col("url_host_tld").is_in(["is", "fo"]), keys("*.is", "*.fo")),
    ((domain == "example.com") | (surtkey == "net"), merge([*keys("*.example.com"), exact_interval(b"net")])),
    ((domain == "example.com") & surtkey.str.starts_with("com,example)/"), (EXAMPLE,)),
    (url.str.starts_with("http://Shop.example.com:8080/"), of_host("com,example,shop")),
    (host == "shop.example.com", of_host("com,example,shop")),
    (host == "www.example.com", of_host("com,example", "com,example,www")),
    (host == "www.www2.example.com", of_host("com,example", "com,example,www2", "com,example,www2,www")),
    (domain == "www2.com", merge([*of_host("com", "com,www2"), prefix_interval(b"com,www2,")])),
]


@pytest.mark.parametrize(("condition", "expected"), KEYS, ids=lambda value: str(value)[:60])
def test_conditions_become_key_intervals(condition: pl.Expr, expected: tuple[KeyInterval, ...]) -> None:
    assert pushed(condition).keys == expected


@pytest.mark.parametrize(
    "condition",
    [
        *(host == "192.168.1.1", host == "xn--mnchen-3ya.de", host == "münchen.de", host == "Example.com", host == ""),
        *(host.str.ends_with("example.com"), domain != "example.com"),
        *(domain.is_in(["example.com", "xn--mnchen-3ya.de"]), url == "https://www.www2.example.com/"),
        *(url == "https://[::1]/", url == "example.com", url.str.starts_with("https://example.co")),
        *(url.str.starts_with("https://user@example.com/"), (domain == "example.com") | (status == 200)),
        ~(domain == "example.com"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_uncertain_hosts_limit_no_keys(condition: pl.Expr) -> None:
    assert pushed(condition).keys is None


def milliseconds(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp()) * 1000  # type: ignore[misc,arg-type]


def test_times_become_bounds() -> None:
    first, last = datetime(2022, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC), datetime(2022, 2, 1, tzinfo=UTC)
    low, high = milliseconds(2022, 1, 1, 12), milliseconds(2022, 2, 1)
    for condition in (time.is_between(first, last), (time > first) & (time < last), time.is_in([last, first])):
        assert pushed(condition) == Pushdown(from_ms=low, to_ms=high + 1000)
    assert pushed((time >= first) & (time >= last) & (status == 200)) == Pushdown(
        from_ms=high, where=('"fetch_status" = 200',)
    )
    assert pushed((time >= first) | (status == 200)) == Pushdown()


def test_conditions_on_partitions_are_evaluated_by_polars() -> None:
    year, subset = crawl.str.slice(8, 4).cast(pl.Int32) > 2020, pl.col("subset").is_in(["warc"])
    found = pushed(year & (status == 200) & (subset | (crawl == "a")))
    assert found.where == ('"fetch_status" = 200',)
    assert [str(each) for each in found.paths] == [str(year), str(subset | (crawl == "a"))]
    assert pushed((crawl == "a") | (status == 200)).where == ('("crawl" = \'a\') or ("fetch_status" = 200)',)


def test_other_datasets_have_keys_of_their_own() -> None:
    hosts = define_dataset("hosts", "surt_host_name")
    condition = (pl.col("surt_host_name") == "com,example") & (pl.col("url_host_name") == "example.com")
    found = push_down(condition, SCHEMA.append(hosts.schema.field(0)), hosts)
    assert found.keys == (exact_interval(b"com,example"),)
    assert found.where == ("\"url_host_name\" = 'example.com'",)


def test_only_text_and_signed_integers_are_compared_by_sql() -> None:
    types = {"a": pa.uint64(), "b": pa.float64(), "c": pa.bool_(), "d": pa.int64(), "n": pa.int64(), "N": pa.string()}
    for name in types:
        condition = pl.col(name).is_null()
        found = push_down(condition, pa.schema([*types.items()]), COMMON_CRAWL)
        assert found == Pushdown(where=('"d" IS NULL',) if name == "d" else ())  # SQL does not tell n and N apart


def test_conditions_mean_the_same_as_collected() -> None:
    """polars rewrites conditions before it passes them on."""
    received: list[pl.Expr | None] = []

    def source(_columns: object, predicate: pl.Expr | None, _rows: object, _batch: object) -> Any:
        received.append(predicate)
        yield pl.DataFrame(SCHEMA.empty_table())

    frame = pl.io.plugins.register_io_source(source, schema=pl.DataFrame(SCHEMA.empty_table()).schema)
    for condition in [each for plain, _ in WHERE[:9] for each in (plain, ~~plain)]:
        frame.filter(condition).collect()
        predicate = received[-1]
        assert predicate is not None
        assert pushed(predicate).where
