"""The Java that Spark needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tranrepl.errors import ConfigurationError

MINIMUM_JAVA = 17


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
