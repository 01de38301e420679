#pragma once

#include "discreet/data/dataset.h"

namespace discreet::data {

// The handwritten digits that are part of the library: 1,797 images of 8 x 8 pixels, values 0 ...
// 16 mapped to [0, 1], 10 classes (digits.md: source and licence). The split is fixed and public:
// every fifth image tests, from the second on; the other 1,437 train.
struct Digits {
  Dataset train;
  Dataset test;
};
Digits read_digits();

}  // namespace discreet::data
