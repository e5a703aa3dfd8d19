"""The tables, columns and rows that a task replicated, as OpenLineage has them.

OpenLineage's provider asks for them in a process that it forks after `execute`, so a task collects them before. Without
the provider nothing is collected. Source: OpenLineage, "Column Level Lineage Dataset Facet".
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from airflow.sdk.configuration import conf

from tranrepl.jobs.results import JobResult
from tranrepl.settings.publication import Publication
from tranrepl_airflow.assets import TableAddress, table_address
from tranrepl_airflow.job_connections import resolve_connections

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.generated.column_lineage_dataset import InputField, Transformation

    from tranrepl.connections import Connection
    from tranrepl.model.article import RegisteredArticle

log = logging.getLogger(__name__)

_PROVIDER = "airflow.providers.openlineage"


@dataclass(frozen=True, slots=True)
class ReplicatedTable:
    """An article's table at both ends, and what a task wrote to it."""

    source: TableAddress
    destination: TableAddress
    columns: tuple[tuple[str, str], ...]
    """Published columns with their types at the Publisher."""
    filtered_by: tuple[str, ...]
    """Columns that the row filter reads."""
    applied_otherwise: str | None
    """Why the Subscriber's values need not be the Publisher's; None where they are."""
    rows: int
    """Commands that were delivered, and rows that were copied or repaired; none to a table of which the first one
    failed."""


def replicated_tables(publication: Publication, subscription: str, result: JobResult) -> tuple[ReplicatedTable, ...]:
    """Return the tables to which a job wrote, and the one where it failed, as they are registered now. Raises nothing:
    the job has done its work."""
    written = rows_written(result)
    if not written or not _is_on():
        return ()
    try:
        return tuple(_tables(publication, subscription, written))
    except Exception as error:  # noqa: BLE001 - what was delivered stays delivered, whatever a secrets backend raises
        log.warning("the lineage of this run was not made for OpenLineage: %s", type(error).__name__)
        return ()


def rows_written(result: JobResult) -> dict[str, int]:
    """Return how much a job wrote by article, with the one where it failed."""
    rows = Counter(result.commands_by_article)
    for table in result.snapshot:
        rows[table.article] += table.rows
    for compared in result.validation.articles if result.validation is not None else ():
        rows[compared.article] += compared.repaired or 0
    written = {article: count for article, count in rows.items() if count}
    # A comparison that finds differences has written nothing.
    if result.error is not None and result.error.article is not None and result.validation is None:
        written.setdefault(result.error.article, 0)
    return written


def _is_on() -> bool:
    return find_spec(_PROVIDER) is not None and not conf.getboolean("openlineage", "disabled", fallback=False)


def _tables(publication: Publication, subscription: str, rows: dict[str, int]) -> Iterator[ReplicatedTable]:
    # Imported here: parsing a DAG file loads no database driver.
    from tranrepl.topology import Topology

    topology = Topology(publication, resolve_connections(publication.connection_ids()).by_id)
    with topology.distributor() as database:
        record = database.publications.find(publication.publication)
        articles = [] if record is None else database.articles.registered(record, subscription)
    for article in articles:
        written = rows.get(str(article.source))
        ends = topology.publisher_connection, topology.subscriber_connection(subscription)
        table = None if written is None else _table(article, *ends, written)
        if table is not None:
            yield table


def _table(
    article: RegisteredArticle, publisher: Connection, subscriber: Connection, rows: int
) -> ReplicatedTable | None:
    from tranrepl.subscriber.row_filter_translation import columns_read

    source, destination = table_address(publisher, article.source), table_address(subscriber, article.destination)
    if source is None or destination is None:
        return None
    return ReplicatedTable(
        source,
        destination,
        tuple((it.name, it.type_name) for it in article.columns),
        tuple(sorted(columns_read(article.filter))) if article.filter else (),
        article.not_repaired,
        rows,
    )


def operator_lineage(tables: Sequence[ReplicatedTable]) -> OperatorLineage:
    """Return the tables as the provider takes them: inputs at the Publisher, outputs at the Subscriber."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset
    from openlineage.client.generated.column_lineage_dataset import ColumnLineageDatasetFacet, Fields, Transformation
    from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
    from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields

    inputs, outputs = [], []
    for it in tables:
        fields = [SchemaDatasetFacetFields(name=name, type=type_name) for name, type_name in it.columns]
        schema = SchemaDatasetFacet(fields=fields)
        inputs.append(InputDataset(it.source.namespace, it.source.name, facets={"schema": schema}))
        subtype = "IDENTITY" if it.applied_otherwise is None else "TRANSFORMATION"
        direct = Transformation("DIRECT", subtype, it.applied_otherwise, masking=False)
        filtering = Transformation("INDIRECT", "FILTER", masking=False)
        columns = ColumnLineageDatasetFacet(
            fields={name: Fields([_field(it, name, direct)]) for name, _ in it.columns},
            dataset=[_field(it, name, filtering) for name in it.filtered_by],
        )
        statistics = {"outputStatistics": OutputStatisticsOutputDatasetFacet(rowCount=it.rows)} if it.rows else {}
        outputs.append(
            OutputDataset(it.destination.namespace, it.destination.name, statistics, facets={"columnLineage": columns})
        )
    return OperatorLineage(inputs=inputs, outputs=outputs)


def _field(table: ReplicatedTable, column: str, transformation: Transformation) -> InputField:
    from openlineage.client.generated.column_lineage_dataset import InputField

    return InputField(table.source.namespace, table.source.name, column, [transformation])
