#include "discreet/training/features.h"

#include <gtest/gtest.h>
