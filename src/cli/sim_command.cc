// bevy sim: policies compared on machines that need not be there.
#include <algorithm>
#include <cstdio>
#include <format>
#include <string>
#include <thread>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "cli/sim_report.h"
#include "cli/sim_sweep.h"

namespace bevy {
namespace {

std::string printed(const SimSweep& sweep, SimFormat format) {
    switch (format) {
        case SimFormat::kCsv:
            return sim_csv(sweep);
        case SimFormat::kJson:
            return sim_json(sweep);
        case SimFormat::kTable:
            break;
    }
    return sim_table(sweep);
}

// What the table does not repeat in every row.
std::string headline(const SimSweep& sweep, const SimOptions& options) {
    return std::format(
        "{}, {}; {} tokens after {} of warm-up, {} order{} of requests; simulated, not measured\n",
        sweep.model.name, sweep.routes, options.tokens, options.warmup, options.seeds.size(),
        options.seeds.size() == 1 ? "" : "s");
}

}  // namespace

int sim_command(const SimOptions& options) {
    Result<SimSweep> sweep = plan_sweep(options);
    if (!sweep)
        return fail_with(sweep.error());
    // Found out now, not after hours of computing.
    if (!options.plot.empty()) {
        if (Status status = write_text_file(options.plot, ""); !status) {
            print_error(status.error());
            return kExitFailure;
        }
    }
    Status ran;
    {
        ProgressLine progress(stderr, "simulating", options.quiet, ProgressLine::Unit::kCount);
        const uint32_t cores = std::max(std::thread::hardware_concurrency(), 1u);
        ran = run_sweep(*sweep, options.jobs == 0 ? cores : options.jobs,
                        {.show = [&](size_t done, size_t total) { progress.update(done, total); },
                         .keep_going = [] { return !interrupted(); }});
    }
    // What is done is worth showing, even if the rest was interrupted.
    const std::string text = printed(*sweep, options.format);
    const bool with_headline =
        options.format == SimFormat::kTable && !options.quiet && !text.empty();
    const bool shown = print_output(with_headline ? headline(*sweep, options) + "\n" + text : text);
    const Status plotted =
        options.plot.empty() ? Status() : write_text_file(options.plot, sim_plot(*sweep));
    if (!ran)
        print_error(ran.error());
    if (!plotted)
        print_error(plotted.error());
    if (interrupted())
        return kExitInterrupted;
    return ran && plotted && shown ? kExitOk : kExitFailure;
}

}  // namespace bevy
