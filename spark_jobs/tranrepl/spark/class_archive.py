"""The class-data-sharing archive of Spark's JVM, which maps its classes instead of reading them from jars, and so
starts faster.

The archive is made once for a Java and a Spark, and never by a job. The JVM itself refuses one that does not fit its
version, class path or flags, and starts as without (`-Xshare:auto`; source: the `java` command's documentation,
"Application Class Data Sharing").
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping
from importlib.util import find_spec
from mmap import ACCESS_READ, mmap
from pathlib import Path

from tranrepl.errors import InternalError
from tranrepl.spark.installation import find_java, require_java, require_spark_submit
from tranrepl.spark.spark_submit import LOCAL_MASTER_SETTINGS, spark_submit_binary

_OPTIONS = "SPARK_SUBMIT_OPTS"
"""What spark-submit hands to the driver's JVM (in client mode its own), whatever the master and Spark's settings."""
# A file that does not fit is nothing to talk about on standard output. Where it is mapped to the place that it was made
# for, which it is not by default, a JVM makes no copy of its own of it: that is 100 MB and more.
_USE = "-Xshare:auto -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0 -Xlog:cds=off -Xlog:cds+dynamic=off"
_TRAINING = Path(__file__).with_name("class_archive_training.py")
_LAST_LINES = 20


def start_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return environment variables with which spark-submit starts fast; none where there is no archive, or one is
    given."""
    given = environment.get(_OPTIONS, "")
    archive = None if "-XX:SharedArchiveFile" in given else find_archive(environment)
    if archive is None:
        return {}
    return {_OPTIONS: f'"-XX:SharedArchiveFile={archive}" {_USE} {given}'.rstrip()}


def find_archive(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the archive for the Java and the Spark of this environment; None where there is none, or not the whole."""
    name = _name(environment)
    if name is None:
        return None
    found = (path for folder in _folders(environment) for path in sorted(folder.glob(f"{name}-*.jsa")))
    return next((path for path in found if _is_whole(path)), None)


def make_archive(environment: Mapping[str, str] = os.environ) -> Path:
    """Make the archive unless it is there: one Spark job is run, and its JVM writes down what it has loaded.

    Safe beside running jobs and beside another making. Raises ConfigurationError without Java or Spark, InternalError
    with what Spark said where it could not be made, OSError where no folder can be written.
    """
    require_java()
    require_spark_submit()
    found, name = find_archive(environment), _name(environment)
    if found is not None:
        return found
    if name is None:
        raise InternalError("pyspark is not installed here")
    folder = _writable_folder(environment)
    with tempfile.TemporaryDirectory(prefix="making-", dir=folder) as making:
        new = Path(making, "new.jsa")
        _train(new, environment)
        with new.open("rb") as file:
            os.fsync(file.fileno())
        made = folder / f"{name}-{_checksum(new)}.jsa"
        new.replace(made)
    for old in folder.glob(f"{name.rpartition('-')[0]}-*.jsa"):
        if old != made:
            old.unlink(missing_ok=True)
    return made


def _train(archive: Path, environment: Mapping[str, str]) -> None:
    settings = {**LOCAL_MASTER_SETTINGS, "spark.log.level": "ERROR"}
    process = subprocess.run(
        [
            *(spark_submit_binary(), "--master", "local[2]"),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            str(_TRAINING),
        ],
        env={
            **environment,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            _OPTIONS: f'"-XX:ArchiveClassesAtExit={archive}"',
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if process.returncode != 0 or not archive.is_file():
        tail = process.stdout.decode(errors="replace").splitlines()[-_LAST_LINES:]
        raise InternalError("the archive of Spark's classes could not be made", remedy="\n".join(["it says:", *tail]))


def _name(environment: Mapping[str, str]) -> str | None:
    """Return the archive's name: a digest of Spark's place, then one of Java and the jars, so that of one Spark the
    newest archive alone is kept."""
    java, home = find_java(environment), spark_home(environment)
    if java is None or home is None:
        return None
    real = java.resolve()
    library = real.parent.parent / "lib" / "server" / "libjvm.so"
    jars = home / "jars"
    if not jars.is_dir():
        return None
    where = _hash(str(home), environment.get("SPARK_CONF_DIR", ""))
    return f"spark-{where}-{_hash(*(_identity(it) for it in (library if library.exists() else real, jars)))}"


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _identity(path: Path) -> str:
    status = path.stat()
    return f"{path} {status.st_mtime_ns} {status.st_size}"


def spark_home(environment: Mapping[str, str]) -> Path | None:
    """Return Spark's home as spark-submit finds it."""
    if home := environment.get("SPARK_HOME"):
        return Path(home)
    package = find_spec("pyspark")
    return Path(package.origin).parent if package is not None and package.origin is not None else None


def _folders(environment: Mapping[str, str]) -> tuple[Path, Path]:
    """Return the folders that may hold archives: Python's own environment, and the user's cache where that is somebody
    else's."""
    cache = environment.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache"
    return Path(sys.prefix, "var", "cache", "tranrepl"), Path(cache, "tranrepl")


def _writable_folder(environment: Mapping[str, str]) -> Path:
    own, cache = _folders(environment)
    folder = own if os.access(sys.prefix, os.W_OK) else cache
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _is_whole(archive: Path) -> bool:
    """Return whether the archive is what its name says: a JVM that maps one which is not may die of it. That JVM could
    look by itself, and would have all of the file in its memory then."""
    try:
        return _checksum(archive) == archive.stem.rpartition("-")[2]
    except (OSError, ValueError):
        return False


def _checksum(path: Path) -> str:
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return f"{len(content)}.{zlib.crc32(content):08x}"
