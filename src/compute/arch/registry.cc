#include "compute/arch/registry.h"

#include <array>

#include "base/registry.h"

namespace bevy {

std::span<const Architecture> architectures() {
    static const std::array rows = {kQwen3Moe, kGptOss};
    return rows;
}

Result<const Architecture*> find_architecture(std::string_view name) {
    return registry_find(architectures(), "architecture", name);
}

}  // namespace bevy
