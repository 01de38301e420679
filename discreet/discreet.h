#pragma once

#include "discreet/base/bytes.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/base/hash.h"
#include "discreet/base/utf8.h"
#include "discreet/base/version.h"
