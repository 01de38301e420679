#pragma once

#include "discreet/accounting/calibrate.h"
#include "discreet/accounting/event.h"
#include "discreet/accounting/pld.h"
#include "discreet/base/bytes.h"
#include "discreet/base/cbor.h"
#include "discreet/base/error.h"
#include "discreet/base/hash.h"
#include "discreet/base/utf8.h"
#include "discreet/base/version.h"
