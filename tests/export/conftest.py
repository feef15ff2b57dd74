"""Stored files as exports have them, and results of full scans."""

import pyarrow as pa
import pytest

from catalogue import Catalogue
from catalogue.metadata_db.lake_files import LakeFile, lake_files
from tests.support.lakes import Truth, scanned


@pytest.fixture(scope="session")
def truth(all_rows: pa.Table) -> Truth:
    return scanned(all_rows)


@pytest.fixture(scope="session")
def files(harvested: Catalogue) -> list[LakeFile]:
    with harvested.connect() as connection:
        return lake_files(connection, harvested.session.stored_crawls())
