"""The error where no Spark job can be started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tranrepl.errors import ConfigurationError
from tranrepl.spark.installation import require_spark_submit
from tranrepl.spark.spark_submit import spark_submit_binary


def _refusal(binary: str | None, **environment: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as raised:
        require_spark_submit(binary, environment)
    assert "\n" not in raised.value.message
    return raised.value


def test_the_spark_of_this_environment_is_found() -> None:
    require_spark_submit(None, {})
    require_spark_submit("spark-submit", {"PATH": str(Path(spark_submit_binary()).parent)})


def test_a_missing_spark_submit_is_one_line_with_how_to_install_it(tmp_path: Path) -> None:
    for binary, said in (
        ("spark-submit", f"spark-submit is neither on PATH nor beside {sys.executable}"),
        (f"{tmp_path}/spark-submit", f"{tmp_path}/spark-submit is not there"),
    ):
        refusal = _refusal(binary, PATH=str(tmp_path))
        assert refusal.message == f"Spark jobs are started with spark-submit: {said}"
        assert f"{sys.executable} -m pip install 'pyspark>=4.3'" in (refusal.report.remedy or "")


def test_one_that_cannot_be_executed_is_told_with_its_chmod(tmp_path: Path) -> None:
    file = tmp_path / "spark-submit"
    file.write_text("#!/bin/sh\n")
    for binary in (str(file), "spark-submit"):
        refusal = _refusal(binary, PATH=str(tmp_path))
        assert f"{file} cannot be executed" in refusal.message
        assert refusal.report.remedy == f"chmod a+rx {file}"
    file.chmod(0o755)
    require_spark_submit("spark-submit", {"PATH": str(tmp_path)})


def test_a_spark_home_without_spark_is_told_by_its_name(tmp_path: Path) -> None:
    refusal = _refusal(None, SPARK_HOME=f"{tmp_path}/gone")
    assert refusal.message.startswith(f"SPARK_HOME={tmp_path}/gone: there is no Spark")
