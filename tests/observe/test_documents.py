"""Every document has a JSON Schema that requires all of its keys.

That documents are what their schemas say, and are read again, is in `service/test_endpoints.py` and
`service/test_client.py`.
"""

from pydantic import TypeAdapter

from nats_scheduler.observe import documents


def test_each_document_has_a_schema_that_requires_every_key() -> None:
    found = [one for name, one in vars(documents).items() if name.endswith("Document")]
    assert len(found) >= 12
    for one in found:
        schema = TypeAdapter(one).json_schema()
        assert sorted(schema["required"]) == sorted(schema["properties"]), one
