#include "cli/command.h"
#include "cli/openmp.h"

int main(int argc, char** argv) {
    bevy::settle_openmp_waiting(argv);
    return bevy::run_cli(argc, argv);
}
