"""What our processes make of pyarrow does not load pandas."""

from __future__ import annotations

import subprocess
import sys

_MAKES_ARRAYS = """
import sys
from tranrepl.arrow_alone import leave_pandas_out
leave_pandas_out()
import numpy as np, pyarrow as pa, pyarrow.compute as pc, pyarrow.dataset, pyarrow.parquet
import tranrepl.cli, tranrepl.distribution.stored_range, tranrepl.log_reader.storing
numbers = pa.array(np.arange(3))
assert pc.greater(numbers, 1).to_numpy(zero_copy_only=False).tolist() == [False, False, True]
assert "pandas" not in sys.modules
"""


def test_arrays_are_made_without_pandas() -> None:
    subprocess.run([sys.executable, "-c", _MAKES_ARRAYS], check=True)
