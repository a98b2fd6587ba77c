"""What Prometheus reads: numbers that others can check."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from knnmt.service.access import new_key
from support.services import StartService

pytestmark = pytest.mark.filterwarnings("ignore::knnmt.errors.KnnmtWarning")


def read(client: TestClient) -> dict[tuple[str, ...], float]:
    """Every sample, by its name and the values of its labels."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_was_done_is_counted(client: TestClient) -> None:
    client.post("/v1/translate", json={"texts": ["Satz 1 ja ", "etwas anderes", "etwas anderes"]})
    client.post("/d/small/v1/translate", json={"texts": ["etwas anderes"], "stream": True})
    client.post("/v1/domains/small/segments", json={"segments": [{"source": "a", "target": "b"}]})
    client.get("/v1/domains/none")
    client.get("/nothing/of/that/name")
    found = read(client)
    assert found["knnmt_texts_total", "exact match"] == 1
    assert found["knnmt_texts_total", "with memory"] == 3
    assert found["knnmt_result_cache_hits_total",] == 2
    assert found["knnmt_batch_segments_count",] == 1
    assert found["knnmt_batch_segments_sum",] == 1
    assert found["knnmt_rows_total",] >= found["knnmt_searches_total",] > 0
    assert found["knnmt_written_changes_total", "add"] == 1
    assert found["knnmt_request_seconds_count", "POST", "/v1/translate", "200"] == 2
    assert found["knnmt_request_seconds_count", "POST", "/v1/domains/{domain}/segments", "201"] == 1
    assert found["knnmt_request_seconds_count", "GET", "/v1/domains/{domain}", "404"] == 1
    assert found["knnmt_request_seconds_count", "none", "none", "404"] == 1
    assert (found["knnmt_ready",], found["knnmt_waiting",], found["knnmt_domains",]) == (1, 0, 2)
    assert found["knnmt_jobs", "waiting"] == 0
    assert found["process_resident_memory_bytes",] > 1 << 20


def test_clients_cannot_make_metrics_grow(client: TestClient) -> None:
    """Every value of a label takes memory until the service ends."""

    def sent(number: int) -> None:
        client.request(f"METHOD{number}", "/v1/translate")
        client.request("GET", f"/v1/domains/domain{number}")
        client.request("GET", f"/d/domain{number}/page{number}")
        client.request("POST", f"/d/domain{number}/v1/translate", json={"texts": [str(number)]})

    sent(0)
    read(client)  # whose own request is counted, too
    size = len(read(client))
    for number in range(1, 30):
        sent(number)
    found = read(client)
    assert len(found) == size
    assert found["knnmt_request_seconds_count", "other", "/v1/translate", "405"] == 30


def test_a_service_with_keys_shows_them_to_those_who_have_one(
    start_service: StartService, served_store: Path, tmp_path: Path
) -> None:
    key = new_key(tmp_path / "keys.json", "prometheus", "translate")
    client = start_service(stores={"small": served_store}, keys=tmp_path / "keys.json")
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": f"Bearer {key}"}).status_code == 200
