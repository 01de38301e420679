import math

import numpy as np
import pytest

from discreet import _core


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_norm_is_that_of_the_elements_and_does_not_depend_on_threads(dtype):
    x = np.random.default_rng(1).normal(size=(300, 400)).astype(dtype)
    exact = math.sqrt(math.fsum(float(v) ** 2 for v in x.ravel()))
    assert _core.norm_l2(x) == pytest.approx(exact, rel=1e-15)
    assert _core.norm_l2(x, threads=7) == _core.norm_l2(x)


def test_norm_refuses_what_it_would_have_to_copy():
    with pytest.raises(TypeError):
        _core.norm_l2(np.zeros((4, 4))[:, ::2])
    with pytest.raises(TypeError):
        _core.norm_l2(np.zeros(4, np.int64))
