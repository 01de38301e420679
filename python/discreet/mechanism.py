"""The mechanism of private training, over arrays of gradients.

    >>> import numpy as np
    >>> from discreet.mechanism import clip
    >>> clipped = clip({"w": np.array([[3.0, 4.0], [0.3, 0.4]])}, 1.0)
    >>> clipped.sum["w"].round(6)
    array([0.9, 1.2])
"""

from discreet._core import Clipped, clip

__all__ = ["Clipped", "clip"]
