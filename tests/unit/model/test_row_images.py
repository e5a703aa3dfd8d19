"""Images as lines, there and back."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from tranrepl.model.row_images import cells, lines, values

_special = st.sampled_from(["", "\\N", "\\", "\t", "\n", "\r", "\\t", "N", "𝄞", "x" * 13])
_value = st.none() | st.lists(_special, max_size=3).map("".join) | st.text(max_size=14)
_image = st.none() | st.lists(_value, min_size=1, max_size=5)


@given(st.lists(_image, max_size=6))
def test_every_value_of_every_image_comes_back(images: list[list[str | None] | None]) -> None:
    flat = pa.array([value for image in images for value in image or ()], pa.string())
    offsets = np.array([0, *accumulate(len(image or ()) for image in images)])
    written = lines(flat, offsets, np.array([image is None for image in images], dtype=np.bool_))
    assert [None if line is None else values(line) for line in written.to_pylist()] == images
    assert [len(it) if it is not None else 0 for it in cells(written).to_pylist()] == [len(it or ()) for it in images]
