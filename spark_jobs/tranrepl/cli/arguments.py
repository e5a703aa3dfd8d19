"""Arguments that several verbs take, and what they name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tranrepl.admin.check import Checked, check as check_publication
from tranrepl.cli.completion import complete_article, complete_file, complete_subscription
from tranrepl.cli.output import err, remember_file
from tranrepl.connections import all_from_environment
from tranrepl.errors import ConfigurationError
from tranrepl.model.names import TableName
from tranrepl.settings.loading import load_publication
from tranrepl.settings.publication import Publication
from tranrepl.topology import Topology

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The publication's settings, a YAML file.",
        show_default=False,
        autocompletion=complete_file,
        callback=remember_file,
    ),
]
SubscriptionOption = Annotated[
    str | None,
    typer.Option(
        "--subscription",
        "-s",
        metavar="NAME",
        help="Only this subscription.",
        show_default="all",
        autocompletion=complete_subscription,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
MasterOption = Annotated[
    str, typer.Option(metavar="URL", help="Spark master, as spark-submit takes it.", envvar="TRANREPL_SPARK_MASTER")
]


ArticleOption = Annotated[
    str | None,
    typer.Option(
        "--article",
        "-a",
        metavar="TABLE",
        help="Only this article, by its source table.",
        show_default="all",
        autocompletion=complete_article,
    ),
]


SubscriptionName = Annotated[
    str,
    typer.Option(
        "--subscription",
        "-s",
        metavar="NAME",
        help="The subscription.",
        show_default=False,
        autocompletion=complete_subscription,
    ),
]


def load(file: Path) -> Topology:
    publication = load_publication(file)
    return Topology(publication, all_from_environment(publication.connection_ids()))


def checked_publication(topology: Topology) -> Checked:
    with err.status("checking"):
        return check_publication(topology)


def chosen(publication: Publication, subscription: str | None) -> list[str]:
    if subscription is None:
        return [it.name for it in publication.subscriptions]
    return [publication.subscription(subscription).name]


def chosen_article(publication: Publication, article: str | None) -> tuple[str, ...]:
    if article is None:
        return ()
    allowed = [str(it.source) for it in publication.articles]
    if article not in allowed and not _is_of_pattern(publication, article):
        raise ConfigurationError(
            f"--article: publication {publication.publication} has no article {article!r}",
            remedy=f"allowed: {', '.join(allowed)}",
        )
    return (article,)


def _is_of_pattern(publication: Publication, article: str) -> bool:
    try:
        return publication.pattern_of(TableName.parse(article)) is not None
    except ValueError:
        return False
