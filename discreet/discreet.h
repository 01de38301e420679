#pragma once

#include "discreet/base/bytes.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/base/hash.h"
#include "discreet/base/utf8.h"
#include "discreet/base/version.h"
#include "discreet/numerics/elementary.h"
#include "discreet/numerics/fft.h"
#include "discreet/numerics/parallel.h"
#include "discreet/numerics/roots.h"
#include "discreet/numerics/rounding.h"
#include "discreet/numerics/sum.h"
