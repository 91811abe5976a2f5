// Machines and models for the simulation, from JSON files: those of profiles/, which are part of
// the program, or a file of the user's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "sim/hardware_profile.h"
#include "sim/model_profile.h"

namespace bevy {

// `name`: that of a built-in profile or the beginning of one, if it is the only one; or a path: all
// that contains "/" or ends with ".json". Errors: kUnsupported with the names that there are,
// kNotFound, kIo, kCorruptFile (not JSON; a field that is missing, unknown, or out of range).
Result<HardwareProfile> open_hardware_profile(const std::string& name);
Result<ModelProfile> open_model_profile(const std::string& name);

// From the text of a file; `name` is for the errors and the profile.
Result<HardwareProfile> parse_hardware_profile(std::string_view text, const std::string& name);
Result<ModelProfile> parse_model_profile(std::string_view text, const std::string& name);

// Names of the built-in profiles, sorted.
std::vector<std::string> hardware_profile_names();
std::vector<std::string> model_profile_names();

}  // namespace bevy
