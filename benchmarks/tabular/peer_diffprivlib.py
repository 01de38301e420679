"""The accuracy of diffprivlib's logistic regression, in an interpreter of its own: it needs an older scikit-learn.

    peer_diffprivlib.py FILE.npz EPSILON NORM SEED     prints one accuracy for each regularisation in C
"""

import sys
import warnings

import numpy as np
from diffprivlib.models import LogisticRegression

C = (0.01, 1, 100)


def main(path, epsilon, norm, seed):
    warnings.filterwarnings("ignore")
    data = np.load(path)
    for c in C:
        model = LogisticRegression(epsilon=epsilon, data_norm=norm, C=c, random_state=seed, max_iter=200)
        model.fit(data["x"].astype(float), data["y"])
        print((model.predict(data["held_x"].astype(float)) == data["held_y"]).mean())


main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
