#include "cli/command.h"

int main(int argc, char** argv) {
    return bevy::run_cli(argc, argv);
}
