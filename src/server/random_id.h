// Names for replies that no two requests share.
#pragma once

#include <string>

namespace bevy {

// 32 random letters and digits. Any thread.
std::string random_id();

}  // namespace bevy
