"""Pipelines on documents in a list: what everything else is compared with."""

from bucketd.catalog.namespaces import Namespace
from bucketd.common.values import Document, encode
from bucketd.query.execute import run_all
from bucketd.query.pipeline.base import PipelineContext
from bucketd.query.pipeline.parse import parse_pipeline
from bucketd.query.plan.shaping import Rows
from support.memory_engine import MemoryEngine

NAMESPACE = Namespace("lab", "rows")


def in_a_list(rows: list[Document], pipeline: list[Document]) -> list[Document]:
    """The answer of the stages on plain documents."""
    context = PipelineContext(namespace=NAMESPACE)
    node = parse_pipeline(pipeline, context).optimized().node(Rows([encode(row) for row in rows]))
    with MemoryEngine().snapshot() as snapshot:
        return [document for batch in run_all(node, snapshot) for document in batch.documents()]
