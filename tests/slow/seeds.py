"""Bytes that parsers accept, to be damaged."""

import gzip
import json
from pathlib import Path

from catalogue.parquet.page_headers import walk
from catalogue.parquet.page_index import encode_offset_index
from catalogue.parquet.pages import Indexes
from tests.slow.accepting import CRAWL, chunks_of_pages
from tests.support.footers import small_file, trimmed
from tests.support.mirrors import one_of_each_crawl, raw_footer, read_footer
from tests.support.prefix_indexes import index_bytes, url_key


def footers(mirror: Path) -> list[bytes]:
    small = [small_file(), small_file(version="1.0", write_page_index=False, compression="zstd")]
    columns = ("url_surtkey", "fetch_time", "fetch_status")
    return [
        raw_footer(data) for data in (*small, *(trimmed(p.read_bytes(), columns) for p in one_of_each_crawl(mirror)))
    ]


def offset_indexes(_: Path) -> list[bytes]:
    indexes = [walk(data, chunk) for chunk, _, data in chunks_of_pages()]
    return [bytes([number]) + encode_offset_index(index) for number, index in enumerate(indexes)]


def column_indexes(_: Path) -> list[bytes]:
    data = small_file(row_group_size=4, data_page_size=1, write_batch_size=1)
    at = read_footer(data).row_groups[0].chunks["url_surtkey"].column_index
    assert at
    return [data[at.start : at.end]]


def indexes_held(mirror: Path) -> list[bytes]:
    return [
        Indexes(column_indexes(mirror)[0], {"url_surtkey": offset_indexes(mirror)[0][1:]}, own=True).pack(),
        b'{"own":true,"column_index":0,"offset_indexes":[],"clusters":{"3":[["a","b"],["c","d"]]}}\n',
    ]


URLS = (
    "https://www.example.com/a/../b//c/?q=1&b=%E9&a#frag",
    "http://user:pw@0177.0.0.1:8080/%2525%41",
    "http://[::1]:80/x.aspx",
    "http://bücher.example/ß?PHPSESSID=0123456789abcdef0123456789abcdef",
    "example.com/(s(abcdefghijklmnopqrstuvwx))/page.aspx?x",
    "dns:example.com",
    "ftp://example.com:21/;x",
    "http://www2.www.com./?cfid=1&cftoken=2",
    "http://3232235777/",
)

_PATTERNS = (
    "*.example.com",
    "*.is/*",
    "*",
    "example.com/di*",
    "example.com/page?a=1&b=2*",
    "com,example*",
    "x.com:8080/*",
)


def urls(_: Path) -> list[bytes]:
    return [url.encode() for url in (*URLS, *_PATTERNS)]


def manifests(mirror: Path) -> list[bytes]:
    plain = f"cc-index/table/cc-main/warc/crawl={CRAWL}/subset=warc/part-00000-x.c000.gz.parquet\n".encode()
    files = [path.read_bytes()[:2000] for path in sorted(mirror.glob("crawl-data/*/cc-index-table.paths.gz"))]
    return [b"\x80" + plain * 2, b"\x80" + plain + b"\r\ncc-index/\n", b"\0" + gzip.compress(plain, mtime=0)] + [
        b"\0" + each for each in files
    ]


def collinfos(mirror: Path) -> list[bytes]:
    one = b'[{"id":"CC-MAIN-2022-05","name":"x","from":"2022-01-16T09:32:12","to":null},{"id":"CC-MAIN-2012"}]'
    return [one, (mirror / "collinfo.json").read_bytes()[:3000]]


def snapshots(_: Path) -> list[bytes]:
    piece = {"crawl": "CC-MAIN-2022-05", "contents": "a" * 32, "size": 5, "sha256": "b" * 64, "files": 2}
    told = {"table": "files", "size": 1, "sha256": "c" * 64, "rows": 3}
    about = {"format": "catalogue snapshot", "version": 1, "made_at": "2026-01-01", "made_by": "1", "missing": ["x"]}
    return [json.dumps({**about, "pieces": [piece], "tables": [told]}).encode()]


_ROW = {
    "url": "https://example.com/",
    "timestamp": "20220116093212",
    "filename": "crawl-data/C/segments/1.2/warc/x.warc.gz",
}


def rows_of_captures(_: Path) -> list[bytes]:
    rest = {"offset": "12", "length": "345", "digest": "A" * 32, "status": "200"}
    times: list[dict[str, object]] = [
        {"fetch_time": "2022-01-16T09:32:12Z", "warc_record_offset": 3.0},
        {"fetch_time": 1642325532123},
    ]
    return [json.dumps(_ROW | rest | more).encode() for more in ({}, *times)]


def lists_of_captures(mirror: Path) -> list[bytes]:
    rows = rows_of_captures(mirror)
    head = b"url,filename,offset,length\nhttps://example.com/,crawl-data/x/y.warc.gz,5,6\n"
    return [b"\n".join(rows), b"com,example)/ 20220116093212 " + rows[0] + b"\n", head]


def records(_: Path) -> list[bytes]:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=x\r\nContent-Encoding: %s\r\n\r\n"
    found = []
    for coding, body in ((b"gzip", gzip.compress(b"hello", mtime=0)), (b"deflate", b"x"), (b"br", b"<p>")):
        block = head % coding + body
        fields = (
            b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Date: 2022-08-15T01:02:03Z\r\nWARC-Target-URI: http://e.com/\r\n"
        )
        found.append(b"\x20" + fields + b"Content-Length: %d\r\n\r\n" % len(block) + block + b"\r\n\r\n")
        found.append(b"\x20http://e.com/ 192.0.2.1 20220815010203 text/html %d\n" % len(block) + block + b"\n")
    revisit = b"WARC/1.0\r\nWARC-Type: revisit\r\nWARC-Target-URI: <http://e.com/>\r\nContent-Length: 0\r\n\r\n\r\n\r\n"
    return [*found, b"\x20" + revisit, b"\0" + gzip.compress(found[0][1:], mtime=0)]


def requests(_: Path) -> list[bytes]:
    return [
        b"url=*.example.com&output=json&limit=5&filter==status:200&filter=!~mime:te.*&fl=url,status&page=0",
        b"url=http%3A%2F%2Fexample.com%2F%E9&matchType=prefix&from=2022&to=20221231&sort=reverse&output=text",
        b"url=example.com/*&showNumPages=true&pageSize=3&closest=20220101&filter=~url:(a|b)%2B$",
        b"url=example.com&crawl=latest&status=200&mime=text/html&language=eng&columns=url,fetch_time&limit=3&from=2018",
        b"key=*.example.com&after=a/b.parquet:3&crawl=CC-MAIN-2022-05&limit=1&order=newest",
    ]


def prefix_indexes(_: Path) -> list[bytes]:
    urls = [f"http://h{number}.example.com/{'x' * (number % 20)}" for number in range(6)]
    items = sorted((url_key(url), (1, 2, number, 4 * number, 5)) for number, url in enumerate(urls))
    return [index_bytes(items, 64), index_bytes(items, 70, repeats=False)]
