"""Harvest and query from an S3 bucket, and write to one, with the user's own credentials."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import catalogue
from catalogue.errors import OutputFailed, UnknownCrawl
from catalogue.settings import Settings
from tests.support import canaries
from tests.support.catalogues import catalogue_in
from tests.support.commands import Command
from tests.support.forms import FORMS, copied, urls_in

pytestmark = [
    pytest.mark.in_soak,  # the server takes seconds to start; tests.source.test_sources has an S3 server of its own
    # The AWS SDK leaves sockets and event loops to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
BUCKET = "commoncrawl-test"


@pytest.fixture(scope="module")
def client(mirror: Path, crawl: str) -> Iterator[Any]:
    """A client of an S3 server with the mirror in a bucket."""
    import boto3
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1", **canaries.OF_NOBODY)
    client.create_bucket(Bucket=BUCKET)
    newest = max(path.name for path in (mirror / "crawl-data").iterdir())
    files = [path for path in mirror.rglob("*.parquet") if f"crawl={newest}/" in str(path)]
    files += [mirror / "collinfo.json", mirror / f"crawl-data/{newest}/cc-index-table.paths.gz"]
    for path in [*files, *mirror.rglob(f"crawl-data/{crawl}/segments/*/*/*.warc.gz")]:
        client.put_object(Bucket=BUCKET, Key=f"a-prefix/{path.relative_to(mirror)}", Body=path.read_bytes())
    yield client
    client.close()
    server.stop()


@pytest.fixture
def aws(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    environment = canaries.AWS | {"AWS_ENDPOINT_URL": client.meta.endpoint_url, "AWS_DEFAULT_REGION": "us-east-1"}
    environment |= {"AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment


@pytest.mark.usefixtures("aws")
def test_bucket_gives_the_answers_and_records_of_the_folder(
    harvested: catalogue.Catalogue, crawl: str, tmp_path: Path
) -> None:
    newest = max(harvested.files()["crawl"])
    with catalogue_in(tmp_path, f"s3://{BUCKET}/a-prefix") as cat:
        (outcome,) = cat.harvest("latest", subsets="all")
        assert outcome.progress.name == newest
        assert outcome.progress.requests == outcome.progress.listed
        before = cat.requests
        found = cat.captures("*.example.com")
        assert found.to_arrow() == harvested.captures("*.example.com", crawls=newest).to_arrow()
        assert cat.requests - before == found.plan.requests
        assert canaries.MARK not in f"{cat!r} {found!r} {found.plan!r}"
        rows, before = harvested.captures("*.com", crawls=crawl, limit=40).to_arrow(), cat.requests
        assert [record.member for record in cat.records(rows)] == [record.member for record in harvested.records(rows)]
        assert cat.requests - before == cat.fetch_estimate(rows).requests < rows.num_rows


@pytest.mark.usefixtures("aws")
def test_snapshot_is_exported_to_and_pulled_from_a_bucket(
    client: Any, harvested: catalogue.Catalogue, tmp_path: Path
) -> None:
    place = f"s3://{BUCKET}/snapshots/ours"
    newest, *_, oldest = harvested.session.stored_crawls()
    harvested.export_snapshot(place, crawls=[newest, oldest])
    with catalogue.open(tmp_path / "data", settings=harvested.session.settings) as cat:
        pulled = cat.pull(place, crawls=oldest)
        assert (pulled.files, pulled.crawls) == (len(harvested.files(oldest)), (oldest,))
        cat.pull(place)
        assert cat.session.stored_crawls() == [newest, oldest]
        cat.forget(oldest)
        cat.export_snapshot(place)
        with pytest.raises(UnknownCrawl, match="does not have"):
            cat.pull(place, crawls=oldest)
    there = client.list_objects_v2(Bucket=BUCKET, Prefix="snapshots/")["Contents"]
    names = [each["Key"].removeprefix("snapshots/ours/") for each in there]
    assert names == [f"crawls/{newest}.values", "snapshot.json"]


def test_doctor_examines_a_bucket(aws: dict[str, str], tmp_path: Path) -> None:
    command = Command(tmp_path / "data", f"s3://{BUCKET}/a-prefix/", tmp_path)
    ran = command("doctor", "--json", **aws)
    assert ran.status == 0, ran.err
    found = {each["about"]: each["seen"] for part in ("here", "source") for each in ran.json()[part]}
    assert found["credentials"] == "found, by env"
    assert found["suffix ranges"] == found["ranges"] == "honoured"
    nobody = aws | dict.fromkeys(canaries.AWS, "")
    ran = command("doctor", **nobody)
    assert ran.status == 75
    assert "credentials     none found" in ran.out
    assert "needs AWS credentials" in ran.out


@pytest.mark.usefixtures("aws")
def test_writes_to_a_bucket(
    client: Any, harvested_data: Path, settings: Settings, crawl: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create_bucket(Bucket="mine")
    here = replace(settings, cache=tmp_path / "cache")
    with catalogue.open(harvested_data, settings=here) as cat:
        found = cat.captures("*.com", crawls=crawl, limit=6).to_arrow().to_pylist()
        for form in ("warc", "payload"):
            place = f"s3://mine/a prefix/{form}"
            done = cat.fetch(found, f"{place}/{FORMS[form]}", form=form)
            assert (done.records, done.failed) == (6, {})
            assert urls_in(copied(place, tmp_path / form), form, done.files) == Counter(row["url"] for row in found)
    with catalogue.open(harvested_data, settings=replace(here, cache=tmp_path / "another machine")) as cat:
        done = cat.fetch(found, "s3://mine/a prefix/warc/out.warc.gz")
        assert (done.records, done.bytes, done.files) == (6, 0, ["out-00000.warc.gz"])
        with pytest.raises(OutputFailed, match=r"\(NoSuchBucket\)") as failed:
            cat.fetch(found, "s3://none-of-mine/out.warc.gz")
        assert failed.value.exit_status == 75
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        with pytest.raises(OutputFailed, match=r"\(NoCredentialsError\)"):  # never anonymously
            cat.fetch(found, "s3://mine/out.warc.gz")
