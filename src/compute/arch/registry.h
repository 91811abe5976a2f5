// One declaration per architecture file, for registry.cc.
#pragma once

#include "compute/arch/arch.h"

namespace bevy {

extern const Architecture kQwen3Moe;
extern const Architecture kGptOss;

}  // namespace bevy
