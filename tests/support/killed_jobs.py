"""Jobs of a site that are killed somewhere, chosen at random: in this process where they are not, else in a child."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from support.child_job import ChildJob
from support.site import Site
from support.thread_streams import streams_as_threads
from tranrepl.admin.cleanup import clean_up
from tranrepl.errors import ReplicationError
from tranrepl.failpoint import Failpoint
from tranrepl.jobs.requests import Repair, SnapshotRequest
from tranrepl.jobs.results import JobResult
from tranrepl.snapshot.reinitialization import mark_for_reinitialization

READER_FAILPOINTS = (
    *(Failpoint.FETCHED, Failpoint.STORED),
    *(Failpoint.SCHEMA_CHANGED, Failpoint.REGISTERED, Failpoint.ADVANCED),
)
COMMIT_FAILPOINTS = (
    *(Failpoint.BEGIN, Failpoint.APPLIED, Failpoint.BEFORE_COMMIT),
    *(Failpoint.WATERMARK_SET, Failpoint.AFTER_COMMIT),
)
CHANGE_FAILPOINTS = (
    *(Failpoint.CHANGE_BEGUN, Failpoint.COLUMNS_CHANGED, Failpoint.PROCEDURES_FOLLOWED, Failpoint.DEFINITION_RECORDED),
)
"""Where DDL ends the transaction, as at MariaDB."""
STREAM_FAILPOINTS = (*(Failpoint.VOTED, Failpoint.STREAM_COMMITTED) * 3,)
SNAPSHOT_FAILPOINTS = (
    *(Failpoint.SNAPSHOT_INITIATED, Failpoint.SNAPSHOT_EXPORTED, Failpoint.SNAPSHOT_BEGUN, Failpoint.RANGE_LOADED),
    *(Failpoint.RANGE_COMMITTED, Failpoint.SNAPSHOT_LOADED, Failpoint.SNAPSHOT_ENDED, Failpoint.SNAPSHOT_ACTIVATED),
)
CLEANUP_FAILPOINTS = (Failpoint.UNREGISTERED, Failpoint.MERGED, Failpoint.MERGE_REGISTERED)


@dataclass(frozen=True, slots=True)
class SiteJob:
    """A job of a site, which a child process can run too."""

    name: str
    subscription: str = ""

    def __call__(self, site: Site) -> JobResult:
        try:
            match self.name:
                case "delivery":
                    with streams_as_threads():
                        return site.deliver(self.subscription)
                case "snapshot":
                    return site.take_snapshot(subscription=self.subscription)
                case "repair":
                    return site.validate(self.subscription, repair=Repair.APPLY)
                case "reinitialization":
                    request = SnapshotRequest(publication=site.publication, subscription=self.subscription)
                    mark_for_reinitialization(request, site.topology)
                    return site.take_snapshot(subscription=self.subscription)
                case "clean-up":
                    clean_up(site.topology)
                case "setup":
                    site.set_up()
                case _:
                    return site.read_log()
            return JobResult()
        except ReplicationError as error:
            return JobResult(error=error.report)

    def __str__(self) -> str:
        return f"{self.name} {self.subscription}".strip()


def run_killed(job: SiteJob, site: Site, killed_at: str) -> bool:
    """Run it in a child that kills itself there. Return whether it came there."""
    return ChildJob(job, site, killed_at).killed()


def random_failpoint(random: Random, points: tuple[Failpoint, ...], share: float = 0.25) -> str | None:
    """Return where a job is killed, for a share of the jobs."""
    if random.random() >= share:
        return None
    point = random.choice(points)
    often = point not in SNAPSHOT_FAILPOINTS or point in (Failpoint.RANGE_LOADED, Failpoint.RANGE_COMMITTED)
    return f"{point}:{random.choice([1, 1, 1, 2]) if often else 1}"
