"""The generated code is that of the .proto files."""

from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from saros.wire.v1 import events_pb2

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("ending", ["py", "pyi"])
def test_make_proto_would_change_nothing(tmp_path: Path, ending: str) -> None:
    from grpc_tools import protoc

    sources = sorted((ROOT / "proto").rglob("*.proto"))
    assert protoc.main(
        ["", f"--proto_path={ROOT / 'proto'}", f"--{'python' if ending == 'py' else 'pyi'}_out={tmp_path}"]
        + [str(source) for source in sources]
    ) == 0  # fmt: skip
    made = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob(f"*.{ending}")}
    assert made, "nothing was written"
    kept = {path: (ROOT / "services" / path).read_text() for path in made}
    assert made == kept, "run `make proto`"


def test_an_event_never_has_the_field_that_tells_a_batch() -> None:
    batch, event = events_pb2.EventBatch.DESCRIPTOR, events_pb2.Event.DESCRIPTOR
    assert [field.number for field in batch.fields] == [1]
    assert 1 not in event.fields_by_number
    assert batch.fields[0].type == FieldDescriptor.TYPE_MESSAGE


def test_every_message_and_field_is_explained() -> None:
    for source in (ROOT / "proto").rglob("*.proto"):
        lines = source.read_text().splitlines()
        for number, line in enumerate(lines):
            if line.startswith("message "):
                assert lines[number - 1].startswith("//"), line
