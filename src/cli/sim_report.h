// The results of bevy sim as a table, as CSV, as JSON and as a picture.
#pragma once

#include <cstdio>
#include <string>

#include "base/error.h"
#include "cli/sim_options.h"
#include "cli/sim_sweep.h"

namespace bevy {

// For people: a Markdown table, one row per setting, means over its seeds.
std::string sim_table(const SimSweep& sweep);
// Every field of every run that has a result.
std::string sim_csv(const SimSweep& sweep);
std::string sim_json(const SimSweep& sweep);
// Throughput over the cache size, or over the requests at once if those are more: one line per
// policy, one chart per machine and whatever else varies.
std::string sim_plot(const SimSweep& sweep);

}  // namespace bevy
