#include "cli/openmp.h"

#include <unistd.h>

#include <cstdlib>

namespace bevy {

void settle_openmp_waiting(char** argv) {
    constexpr const char* kSpins = "1000";  // a few microseconds
    if (std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT"))
        return;
    if (setenv("GOMP_SPINCOUNT", kSpins, 0) == 0)
        execv("/proc/self/exe", argv);
    // Still here: it works as it is, just slower on a busy machine.
}

}  // namespace bevy
