// bevy inspect: what a model needs, and how fast it can be on this machine.
#include <algorithm>
#include <array>
#include <format>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "base/units.h"
#include "cli/command.h"
#include "cli/opened_model.h"
#include "cli/probe.h"
#include "cli/report.h"
#include "cli/session.h"

namespace bevy {
namespace {

constexpr Duration kProbe = milliseconds(400);
constexpr std::array kHitPercents = {25, 50, 75, 100};

struct TypeCount {
    uint32_t tensors = 0;
    uint64_t expert_bytes = 0;
    uint64_t resident_bytes = 0;
};

struct Bound {
    int hit_percent = 0;
    uint64_t link_bytes = 0;  // per token
    double tokens_per_second = 0;
};

struct Inspection {
    OpenedModel model;
    uint64_t expert_bytes_min = 0;
    uint64_t expert_bytes_max = 0;
    uint64_t expert_bytes_per_token = 0;
    uint64_t resident_bytes_per_token = 0;
    std::map<std::string, TypeCount> types;
    std::optional<MemoryPlan> plan;
    std::optional<Error> plan_error;
    std::optional<LinkProbe> link;
    std::optional<Error> link_error;
    double memory_bytes_per_second = 0;  // 0: not measured
    std::vector<Bound> bounds;           // empty: not measured
};

// A token reads its experts and all resident weights from memory, but only one row of the embedding
// unless that is the head too; experts that miss come over the link first. Link and memory work
// side by side, so the slower one decides.
void add_bounds(Inspection& i) {
    if (!i.link || i.memory_bytes_per_second <= 0)
        return;
    const double memory_s =
        static_cast<double>(i.resident_bytes_per_token + i.expert_bytes_per_token) /
        i.memory_bytes_per_second;
    for (const int hit : kHitPercents) {
        Bound bound{.hit_percent = hit};
        bound.link_bytes = i.expert_bytes_per_token * static_cast<uint64_t>(100 - hit) / 100;
        const double link_s = static_cast<double>(bound.link_bytes) / i.link->bytes_per_second;
        bound.tokens_per_second = 1.0 / std::max(memory_s, link_s);
        i.bounds.push_back(bound);
    }
}

Result<Inspection> inspect(const InspectOptions& options) {
    Result<OpenedModel> model = open_model(options.session.model);
    if (!model)
        return std::unexpected(model.error());
    Inspection i;
    i.model = std::move(*model);
    const ExpertTable& table = i.model.experts.table;
    i.expert_bytes_min = std::numeric_limits<uint64_t>::max();
    for (const LayerExperts& layer : table.layers) {
        const uint64_t bytes = layer.bytes_per_expert();
        i.expert_bytes_min = std::min(i.expert_bytes_min, bytes);
        i.expert_bytes_max = std::max(i.expert_bytes_max, bytes);
        i.expert_bytes_per_token += bytes * i.model.shape.experts_used;
    }
    for (const TensorInfo& tensor : i.model.file.tensors()) {
        TypeCount& type = i.types[tensor_type_name(tensor.type)];
        ++type.tensors;
        const bool expert = tensor.name.contains("_exps.weight");
        (expert ? type.expert_bytes : type.resident_bytes) += tensor.bytes;
    }
    i.resident_bytes_per_token = i.model.resident_bytes;
    const TensorInfo* embedding = i.model.file.find("token_embd.weight");
    if (embedding != nullptr && i.model.file.find("output.weight") != nullptr)
        i.resident_bytes_per_token -=
            embedding->bytes - embedding->bytes / std::max(i.model.shape.vocabulary, 1u);
    if (Result<MemoryPlan> plan = plan_session(i.model, options.session))
        i.plan = std::move(*plan);
    else
        i.plan_error = plan.error();
    if (!options.no_probe && !options.memory_only) {
        const uint32_t cores = std::max(std::thread::hardware_concurrency(), 1u);
        const uint32_t threads = options.session.threads == 0 ? cores : options.session.threads;
        i.memory_bytes_per_second = probe_memory(threads, kProbe);
        if (Result<LinkProbe> link = probe_link(i.model, options.session, kProbe))
            i.link = *link;
        else
            i.link_error = link.error();
    }
    add_bounds(i);
    return i;
}

void print_model(const Inspection& i) {
    const ModelShape& s = i.model.shape;
    const ExpertTable& table = i.model.experts.table;
    print_table(
        stdout, i.model.file.paths().front(),
        {{"architecture", s.architecture + (s.name.empty() ? "" : " (" + s.name + ")")},
         {"layers", std::format("{}, {} of them with experts", s.layers, table.layers.size())},
         {"experts", std::format("{} per layer, {} used per token, {} in all", s.experts,
                                 s.experts_used, table.expert_count())},
         {"bytes per expert",
          i.expert_bytes_min == i.expert_bytes_max
              ? format_bytes(i.expert_bytes_min)
              : format_bytes(i.expert_bytes_min) + " to " + format_bytes(i.expert_bytes_max)},
         {"expert weights", format_bytes(table.total_bytes())},
         {"resident weights", format_bytes(i.model.resident_bytes)},
         {"context", std::format("{} tokens", s.context_train)},
         {"vocabulary", std::format("{} tokens", s.vocabulary)},
         {"files", std::format("{}, {} in all", i.model.file.paths().size(),
                               format_bytes(i.model.file.file_bytes()))}});
    std::printf("\n%-10s %8s %12s %12s\n", "type", "tensors", "experts", "resident");
    for (const auto& [name, type] : i.types)
        std::printf("%-10s %8u %12s %12s\n", name.c_str(), type.tensors,
                    format_bytes(type.expert_bytes).c_str(),
                    format_bytes(type.resident_bytes).c_str());
    std::printf("\n");
}

void print_bounds(const Inspection& i) {
    if (i.link_error)
        print_notice("the link could not be measured: " + i.link_error->text());
    if (i.bounds.empty())
        return;
    std::printf(
        "\nmeasured: link %.0f MB/s (%s), memory %.1f GB/s\n", i.link->bytes_per_second / 1e6,
        i.link->direct ? "direct" : "through the page cache", i.memory_bytes_per_second / 1e9);
    std::printf(
        "bound for one request: tok/s = 1 / max((resident + experts) / memory, misses / link)\n"
        "read per token: %s resident (of the embedding one row), %s experts; misses = experts x "
        "(1 - hits)\n",
        format_bytes(i.resident_bytes_per_token).c_str(),
        format_bytes(i.expert_bytes_per_token).c_str());
    std::printf("%8s %16s %10s\n", "hits", "link bytes/token", "tok/s");
    for (const Bound& bound : i.bounds)
        std::printf("%6d %% %16s %10.1f\n", bound.hit_percent,
                    format_bytes(bound.link_bytes).c_str(), bound.tokens_per_second);
}

nlohmann::ordered_json to_json(const Inspection& i) {
    const ModelShape& s = i.model.shape;
    const ExpertTable& table = i.model.experts.table;
    nlohmann::ordered_json json = {
        {"files", i.model.file.paths()},
        {"architecture", s.architecture},
        {"name", s.name},
        {"layers", s.layers},
        {"moe_layers", table.layers.size()},
        {"experts_per_layer", s.experts},
        {"experts_used", s.experts_used},
        {"expert_bytes_min", i.expert_bytes_min},
        {"expert_bytes_max", i.expert_bytes_max},
        {"expert_bytes_total", table.total_bytes()},
        {"resident_bytes", i.model.resident_bytes},
        {"resident_bytes_per_token", i.resident_bytes_per_token},
        {"expert_bytes_per_token", i.expert_bytes_per_token},
        {"context", s.context_train},
        {"vocabulary", s.vocabulary},
    };
    for (const auto& [name, type] : i.types)
        json["types"][name] = {{"tensors", type.tensors},
                               {"expert_bytes", type.expert_bytes},
                               {"resident_bytes", type.resident_bytes}};
    if (i.plan) {
        json["memory_plan"]["slots"] = i.plan->slots;
        for (const MemoryRow& row : memory_rows(*i.plan))
            json["memory_plan"]["rows"][row.name] = row.bytes;
    } else {
        json["memory_plan_error"] = i.plan_error->message;
    }
    if (i.link)
        json["link"] = {{"bytes_per_second", i.link->bytes_per_second}, {"direct", i.link->direct}};
    if (i.memory_bytes_per_second > 0)
        json["memory_bytes_per_second"] = i.memory_bytes_per_second;
    for (const Bound& bound : i.bounds)
        json["bounds"].push_back({{"hit_percent", bound.hit_percent},
                                  {"link_bytes_per_token", bound.link_bytes},
                                  {"tokens_per_second", bound.tokens_per_second}});
    return json;
}

}  // namespace

int inspect_command(const InspectOptions& options) {
    const Result<Inspection> inspection = inspect(options);
    if (!inspection) {
        print_error(inspection.error());
        return kExitFailure;
    }
    if (options.json) {
        using Json = nlohmann::ordered_json;
        const std::string text =
            to_json(*inspection).dump(2, ' ', false, Json::error_handler_t::replace);
        std::printf("%s\n", text.c_str());
        return kExitOk;
    }
    if (!options.memory_only)
        print_model(*inspection);
    if (inspection->plan)
        print_memory_plan(stdout, *inspection->plan);
    else
        print_error(*inspection->plan_error);
    print_bounds(*inspection);
    return inspection->plan ? kExitOk : kExitFailure;
}

}  // namespace bevy
