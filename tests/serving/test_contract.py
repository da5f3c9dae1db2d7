"""The server keeps the promises of its own OpenAPI document, whatever is sent to it."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from servers import Command

pytest_plugins = ("shared",)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
"""Not among them: that whatever fits the schema is accepted. No schema can say that a constraint is not blank."""
ENDPOINTS = {
    ("post", "/v1/generate"): 25,
    ("post", "/v1/generate/stream"): 25,
    ("post", "/v1/explain"): 15,
    ("get", "/v1/models"): 2,
    ("get", "/health"): 2,
    ("get", "/metrics"): 2,
}
"""With how many requests of each mode to make."""


@pytest.fixture(scope="module")
def document(server: Command) -> Any:
    return schemathesis.openapi.from_url(server.url + "/openapi.json")


def test_the_document_has_exactly_these_endpoints(document: Any) -> None:
    found = {(method, path) for path, methods in document.raw_schema["paths"].items() for method in methods}
    assert found == set(ENDPOINTS)


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    # A GET has nothing that could be wrong.
    [
        (*one, mode)
        for one in ENDPOINTS
        for mode in GenerationMode
        if one[0] == "post" or mode is GenerationMode.POSITIVE
    ],
)
def test_an_endpoint_keeps_its_contract(document: Any, method: str, path: str, mode: GenerationMode) -> None:
    operation = document[path][method.upper()]

    @settings(
        max_examples=ENDPOINTS[method, path],
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def keeps_it(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS, timeout=120)

    keeps_it()
