"""What Spark, its JVM and py4j say in every run and nobody needs: silenced where it comes from, or left out."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from tranrepl.spark.class_archive import spark_home, start_variables

_OPTIONS = "SPARK_SUBMIT_OPTS"
_CONFIGURATION = Path(__file__).with_name("log4j2.properties")
_OWN_FILES = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.json")
_ARENAS = "MALLOC_ARENA_MAX"
"""glibc makes an arena for each thread that allocates, up to eight a core: with many threads that mostly wait, as
Spark's are, that is memory for nothing."""
_INCUBATOR = "WARNING: Using incubator modules:"
"""The JVM itself says it, before anything of Spark's, of a module that spark-submit always asks for."""


def submission_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return environment variables with which spark-submit starts fast, takes less memory, and says only what went
    wrong.

    Where somebody has configured Spark's logging, it stays as it is.
    """
    variables = {**start_variables(environment), _ARENAS: environment.get(_ARENAS, "2")}
    if _has_own_configuration(environment):
        return variables
    options = variables.get(_OPTIONS, environment.get(_OPTIONS, ""))
    return {**variables, _OPTIONS: f'"-Dlog4j2.configurationFile={_CONFIGURATION.as_uri()}" {options}'.rstrip()}


def is_chatter(line: str) -> bool:
    """Return whether a line of spark-submit's output is one that cannot be silenced where it comes from."""
    return line.startswith(_INCUBATOR)


def silence_py4j() -> None:
    """Keep py4j from logging each connection that it closes, and, with a traceback, an error that it also raises."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _has_own_configuration(environment: Mapping[str, str]) -> bool:
    if "-Dlog4j" in environment.get(_OPTIONS, ""):
        return True
    home = spark_home(environment)
    conf = environment.get("SPARK_CONF_DIR") or (str(home / "conf") if home is not None else "")
    return bool(conf) and any(Path(conf, it).is_file() for it in _OWN_FILES)
