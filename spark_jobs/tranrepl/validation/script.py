"""The statements that would correct a Subscriber's rows, for a person to look at and run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tranrepl.errors import ConfigurationError
from tranrepl.jobs.requests import ValidationRequest
from tranrepl.subscriber.comparison import Correction, SubscriberComparison, by_statements
from tranrepl.validation.sync_point import HeldSyncPoint


def write_script(
    request: ValidationRequest,
    subscriber: SubscriberComparison,
    point: HeldSyncPoint,
    pieces: Iterable[Sequence[Correction]],
) -> None:
    """Append to the request's file, which only its owner can read: it has values of rows.

    Raises ConfigurationError where it cannot be written.
    """
    path = request.repair_script
    if path is None:
        return
    try:
        path.touch(mode=0o600)
        with path.open("a", encoding="utf-8") as file:
            file.write(
                f"-- Subscriber {request.subscription} of publication {request.publication.publication}, compared at "
                f"0x{point.watermark.hex()}.\n"
                "-- Run it while nothing is delivered; it does not know of later changes.\n"
                f"{subscriber.begin};\n"
            )
            for some in pieces:
                chosen = (replace(it, article=by_statements(it.article)) for it in some)
                file.writelines(f"{subscriber.statement(it)};\n" for it in chosen)
            file.write("COMMIT;\n")
    except OSError as error:
        raise ConfigurationError(f"--repair-script: {path} cannot be written: {error.strerror}") from error
