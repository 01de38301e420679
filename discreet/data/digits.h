#pragma once

#include "discreet/data/dataset.h"

namespace discreet::data {

// The handwritten digits included in the library: 1,797 images of 8 x 8 pixels, values 0 ... 16
// mapped to [0, 1], 10 classes (source and licence: digits.md). The split is fixed and public:
// every fifth image, starting with the second, is for testing; the other 1,437 are for training.
struct Digits {
  Dataset train;
  Dataset test;
};
Digits read_digits();

}  // namespace discreet::data
