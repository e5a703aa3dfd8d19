"""The Spark that `spark-submit` starts: whether it is there, and of the version of the pyspark that jobs import."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path

from tranrepl.errors import ConfigurationError
from tranrepl.spark.spark_submit import spark_submit_binary

MINIMUM_JAVA = 17
MINIMUM_SPARK = (4, 3)


def find_java(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the Java that spark-submit starts; None where there is none."""
    home = environment.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    return Path(java) if java is not None and Path(java).is_file() else None


def require_java() -> None:
    """Raise ConfigurationError where there is no Java, or one too old for Spark 4."""
    home, java = os.environ.get("JAVA_HOME"), find_java()
    remedy = "install Java 17 (on Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one"
    if java is None:
        where = f"JAVA_HOME={home}" if home else "on PATH"
        raise ConfigurationError(f"Spark needs Java, and there is none ({where})", remedy=remedy)
    try:
        says = _what_it_says(java)
    except OSError as error:
        raise ConfigurationError(
            f"Spark needs Java, and {java} cannot be started: {error.strerror}", remedy=remedy
        ) from error
    found = re.search(r'version "(\d+)', says)
    if found is None or int(found[1]) < MINIMUM_JAVA:
        version = next(iter(says.splitlines()), "of unknown version")
        raise ConfigurationError(f"Spark needs Java {MINIMUM_JAVA}; {java} is {version}", remedy=remedy)


@cache
def _what_it_says(java: Path) -> str:
    """Return what Java says of its version. Asked once a process: a JVM is started for it."""
    return subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr


_CLIENT = "pyspark-client"
_CORE = re.compile(r"spark-core_[\d.]+-(\d+\.\d+)\..*jar")


def require_fitting_spark() -> None:
    """Raise ConfigurationError where there is no spark-submit, or where it starts a Spark of another version than
    pyspark's, as a SPARK_HOME of an older installation makes it do."""
    require_whole_pyspark()
    require_spark_submit()
    binary, named = shutil.which(spark_submit_binary()), os.environ.get("SPARK_HOME")
    pyspark = _found("pyspark")
    home = Path(named) if named else _home_of(Path(str(binary)))
    found = _spark_version(home)
    if pyspark is None:
        # A Spark of its own brings its pyspark along.
        _require_recent(found, home)
        return
    installed = pyspark.version
    if found is not None and found != ".".join(installed.split(".")[:2]):
        raise ConfigurationError(
            f"spark-submit starts Spark {found} ({home}), and pyspark here is {installed}",
            remedy=f"{'unset SPARK_HOME' if named else 'take that folder from PATH'}, or install a Spark {installed}",
        )


def _require_recent(version: str | None, home: Path) -> None:
    """Raise ConfigurationError where a Spark that has no pyspark beside tranrepl is older than what jobs need."""
    numbers = tuple(map(int, version.split("."))) if version is not None else (0, 0)
    if numbers < MINIMUM_SPARK:
        wanted = ".".join(map(str, MINIMUM_SPARK))
        raise ConfigurationError(
            f"spark-submit starts Spark {version or 'of unknown version'} ({home}), and pyspark is not installed in "
            "the environment of tranrepl",
            remedy=f"put the bin folder of a Spark {wanted} on PATH, or {sys.executable} -m pip install 'pyspark>=4.3'",
        )


def _home_of(binary: Path) -> Path:
    """Return Spark's home for pip's spark-submit, which is beside Python, or for the one in a Spark's own bin
    folder."""
    home = binary.resolve().parent.parent
    packages = sorted(home.glob("lib/python3*/site-packages/pyspark"))
    return packages[-1] if packages and not (home / "jars").is_dir() else home


def _spark_version(home: Path) -> str | None:
    """Return Spark's major and minor version by its jars: asking Spark itself takes a JVM's start."""
    names = (_CORE.fullmatch(it.name) for it in home.glob("jars/spark-core_*"))
    return next((it[1] for it in names if it is not None), None)


def require_whole_pyspark() -> None:
    """Raise ConfigurationError where pyspark's files are gone, as pip leaves it that has uninstalled pyspark-client."""
    pyspark = _found("pyspark")
    if pyspark is not None and not Path(str(pyspark.locate_file("pyspark/__init__.py"))).exists():
        raise ConfigurationError(
            f"files of pyspark {pyspark.version} are gone, as after {_CLIENT} was uninstalled",
            remedy=_reinstall(pyspark),
        )


def mixed_pyspark_warning() -> str | None:
    """Return what is wrong, with the two commands that mend it, where pyspark-client has overwritten files of pyspark.

    Airflow's Spark provider asks for pyspark-client, whose files have the same names and are another version's. What
    spark-submit starts takes pyspark from an archive beside it and is not hit; whatever else imports pyspark is.
    """
    pyspark, client = _found("pyspark"), _found(_CLIENT)
    if pyspark is None or client is None or not any(_is_changed(pyspark, it) for it in _shared(pyspark, client)):
        return None
    return (
        f"{_CLIENT} {client.version}, which Airflow's Spark provider brings, has overwritten files of pyspark "
        f"{pyspark.version}; mend it by these two:\n"
        f"{sys.executable} -m pip uninstall --yes {_CLIENT}\n{_reinstall(pyspark)}"
    )


def _reinstall(pyspark: Distribution) -> str:
    return f"{sys.executable} -m pip install --force-reinstall --no-deps pyspark=={pyspark.version}"


def _found(package: str) -> Distribution | None:
    try:
        return distribution(package)
    except PackageNotFoundError:
        return None


def _shared(one: Distribution, other: Distribution) -> list[PackagePath]:
    """Return files of `one` that `other` has under the same name."""
    names = {str(it) for it in other.files or ()}
    return [it for it in one.files or () if str(it) in names and it.suffix == ".py"]


def _is_changed(package: Distribution, file: PackagePath) -> bool:
    """Return whether a file is not the one that was installed, by the hash that pip wrote down."""
    path = Path(str(package.locate_file(file)))
    if file.hash is None or not path.is_file():
        return file.hash is not None
    digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value


_REMEDY = (
    f"install pyspark beside tranrepl ({sys.executable} -m pip install 'pyspark>=4.3'), or put the bin folder of a "
    "Spark 4.3 on PATH"
)


def require_spark_submit(binary: str | None = None, environment: Mapping[str, str] = os.environ) -> None:
    """Raise ConfigurationError where spark-submit (this one, else the one that is found) cannot be started, or
    SPARK_HOME leads it to where no Spark is."""
    wanted = binary or spark_submit_binary()
    path = environment.get("PATH", os.defpath)
    if shutil.which(wanted, path=path) is None:
        found = shutil.which(wanted, mode=os.F_OK, path=path)
        if found is None:
            where = (
                f"{wanted} is not there"
                if "/" in wanted
                else f"{wanted} is neither on PATH nor beside {sys.executable}"
            )
            raise ConfigurationError(f"Spark jobs are started with spark-submit: {where}", remedy=_REMEDY)
        raise ConfigurationError(
            f"Spark jobs are started with spark-submit: {found} cannot be executed", remedy=f"chmod a+rx {found}"
        )
    home = environment.get("SPARK_HOME")
    if home and not os.access(Path(home, "bin", "spark-class"), os.X_OK):
        raise ConfigurationError(
            f"SPARK_HOME={home}: there is no Spark ({home}/bin/spark-class is missing, or cannot be executed)",
            remedy="unset SPARK_HOME, and the Spark beside spark-submit is taken; or set it to a Spark 4.3",
        )
