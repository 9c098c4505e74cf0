"""Every route keeps to the schema that the server publishes, whatever it is sent: schemathesis, without state."""

import os
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis.specs.openapi.checks import positive_data_acceptance

pytestmark = pytest.mark.nightly
EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "40"))  # of a route, of good and of bad input each
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_routes_keep_to_the_schema(address: str, mode: schemathesis.GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"http://{address}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert {"POST /v1/embeddings", "POST /v1/rerank", "POST /chunks"} <= {each.label for each in operations}
    failed = []
    for operation in operations:
        if mode == schemathesis.GenerationMode.NEGATIVE and operation.method.upper() == "GET":
            continue  # nothing can be wrong

        @hypothesis.settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=SLOW)
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Any) -> None:
            case.call_and_validate(excluded_checks=[positive_data_acceptance])  # the model has limits beyond the schema

        try:
            check()
        except (Exception, BaseExceptionGroup) as error:
            failed.append(f"{operation.label}: {error!r}")
    assert failed == []
