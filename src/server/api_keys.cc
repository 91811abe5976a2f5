#include "server/api_keys.h"

namespace bevy {
namespace {

// Looks at every byte, wherever the first difference is.
bool same(std::string_view a, std::string_view b) {
    unsigned difference = a.size() == b.size() ? 0 : 1;
    for (size_t i = 0; i < a.size(); ++i) {
        const char other = b.empty() ? '\0' : b[i % b.size()];
        difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other);
    }
    return difference == 0;
}

}  // namespace

bool ApiKeys::opens(std::string_view authorization) const {
    constexpr std::string_view kBearer = "Bearer ";
    if (authorization.starts_with(kBearer))
        authorization.remove_prefix(kBearer.size());
    bool any = false;
    for (const std::string& key : keys_)
        any |= same(authorization, key);
    return any;
}

}  // namespace bevy
