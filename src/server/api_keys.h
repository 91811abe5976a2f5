// Who may use the server.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace bevy {

class ApiKeys {
public:
    explicit ApiKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

    bool needed() const { return !keys_.empty(); }
    // Takes the same time for every wrong key of one length. "Bearer KEY", or the key alone.
    bool opens(std::string_view authorization) const;

private:
    std::vector<std::string> keys_;
};

}  // namespace bevy
