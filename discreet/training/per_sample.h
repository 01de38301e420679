#pragma once

#include <functional>

#include "discreet/layout/gradients.h"
#include "discreet/layout/layer_pass.h"

namespace discreet::training {

// The explicit gradient of every record, from the passes of dense layers with one position: for
// clipping that needs a vector per record (discrete noise, compression, strategies without ghost).
// In binary64, where the product of two binary32 numbers is exact. Processes a few records at a
// time, at most 64 MB or one record: `visit` gets them in order, and whether they are the last. A
// pass without records is visited once.
void for_each_explicit(
    const BackwardPass<float>& pass, const ModelLayout& layout,
    const std::function<void(const PerSampleGradients<double>&, bool last)>& visit);

}  // namespace discreet::training
