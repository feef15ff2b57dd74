"""Values of dictionary pages."""

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalogue.parquet.dictionary_pages import dictionary_values
from catalogue.parquet.footer import decode_footer
from catalogue.parquet.page_headers import page_header
from tests.support.mirrors import raw_footer


@pytest.mark.parametrize("checksum", [True, False])
def test_values_of_pages_with_a_wrong_checksum_are_not_used(*, checksum: bool) -> None:
    written = BytesIO()
    names = pa.table({"name": [f"name {number:03}" for number in range(100)]})
    pq.write_table(names, written, write_page_checksum=checksum, compression="none", write_statistics=False)
    data = written.getvalue()
    chunk = decode_footer(raw_footer(data), len(data)).row_groups[0].chunks["name"]
    start = chunk.range.start
    page = data[start : start + page_header(data[start : chunk.range.end]).size]
    damaged = page[:-1] + b"x"
    (found,), (other,) = dictionary_values([(chunk, page)]), dictionary_values([(chunk, damaged)])
    assert found is not None
    assert found.to_pylist() == names.column("name").to_pylist()
    if checksum:
        assert other is None
    else:
        assert other is not None
        assert other[-1].as_py() == "name 09x"
