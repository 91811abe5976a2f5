// bevy make-model inflate: a model with wider experts and the same output.
#include "model/inflated_model.h"

#include "cli/command.h"
#include "cli/model_writing.h"

namespace bevy {

int inflate_model_command(const InflateModelOptions& options) {
    return write_model([&](const WriteProgress& progress) {
        return write_inflated_model({.model = options.model,
                                     .expert_ff = options.expert_ff,
                                     .path = options.output.path,
                                     .overwrite = options.output.force,
                                     .on_progress = progress});
    });
}

}  // namespace bevy
