#include "cli/calibrate_options.h"

#include "cli/option_declarations.h"

namespace bevy {

using namespace option_group;

void declare_calibrate_options(CLI::App& app, CalibrateOptions& o) {
    declare_model(app, o.session);
    declare_machine(app, o.session);
    declare_storage(app, o.session);
    number(app, kGeneration, "-n,--n-gen", o.tokens, 4u, 100'000u,
           "tokens that every request generates in each run");
    option(app, kOutput, "--hardware", o.hardware_to, "write the machine's profile there (JSON)")
        ->required()
        ->type_name("FILE");
    option(app, kOutput, "--model-profile", o.model_to, "write the model's profile there (JSON)")
        ->required()
        ->type_name("FILE");
    flag(app, kOutput, "-q,--quiet", o.quiet, "errors only");
}

}  // namespace bevy
