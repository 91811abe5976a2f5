// The table of files that CMake compiles in (cmake/embed_files.cmake). Constant; any thread.
#pragma once

#include <span>
#include <string_view>

namespace bevy {

struct WebFile {
    std::string_view path;  // "/index.html"
    std::string_view content;
};

std::span<const WebFile> web_files();

}  // namespace bevy
