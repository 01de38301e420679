#pragma once

#include "discreet/training/dataset.h"

namespace discreet::training {

// The handwritten digits that are part of the library: 1,797 images of 8 x 8 pixels, values 0 ...
// 16 mapped to [0, 1], 10 classes (digits.md: source and licence). The split is fixed and public:
// the first 1,437 images train, the last 360 test.
struct Digits {
  Dataset train;
  Dataset test;
};
Digits read_digits();

}  // namespace discreet::training
