#pragma once

#include <functional>

#include "discreet/layout/gradients.h"
#include "discreet/layout/layer_pass.h"

namespace discreet::training {

// The gradient of every record, written out, from the passes of dense layers with one position: for
// clipping that needs a vector per record (discrete noise, compression, strategies without ghost).
// In binary64, where the product of two binary32 numbers is exact. A few records at a time, so that
// they take 64 MB at most, or one record: `visit` gets them in order, and whether they are the
// last. A pass without records is visited once.
void for_each_explicit(
    const BackwardPass<float>& pass, const ModelLayout& layout,
    const std::function<void(const PerSampleGradients<double>&, bool last)>& visit);

}  // namespace discreet::training
