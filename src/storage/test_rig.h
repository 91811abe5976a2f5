// A model of random experts in temporary files, slots, and a link between them, for this folder's
// tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "storage/faulty_reader.h"
#include "storage/file_link.h"
#include "storage/slot_layout.h"
#include "storage/test_files.h"

namespace bevy {

struct RigOptions {
    LinkOptions link;
    uint64_t seed = 1;
    uint32_t slots = 8;
    uint32_t experts_per_layer = 6;
    uint64_t slice_bytes_max = 60'000;
    bool in_memory = false;
    std::optional<ReaderFaults> faults;
};

class Rig {
public:
    static constexpr std::byte kUntouched{0xa5};

    // Nothing, with the reason in `error`, when the kernel refuses what the options ask for.
    static std::unique_ptr<Rig> make(const RigOptions& options, Error* error) {
        std::unique_ptr<Rig> rig(new Rig(options));
        Status opened = rig->open(options);
        if (!opened) {
            *error = opened.error();
            return nullptr;
        }
        return rig;
    }

    // `slot` holds `expert`, and the rest of it is as fill() left it.
    void expect_holds(SlotIndex slot, ExpertId expert) const {
        const LayerIndex layer = table.layer_of(expert);
        const std::span<const std::byte> memory = arena->slot(slot);
        std::vector<std::byte> outside(memory.begin(), memory.end());
        for (size_t s = 0; s < table.layers[layer.value].slices.size(); ++s) {
            const Extent extent =
                table.layers[layer.value].slices[s].extent(table.index_of(expert));
            const SlotSlice& place = layout.layers[layer.value][s];
            const uint64_t offset = place.offset(table.index_of(expert));
            const auto wanted = files[extent.file]->bytes().subspan(extent.offset, extent.length);
            ASSERT_EQ(std::memcmp(memory.data() + offset, wanted.data(), wanted.size()), 0)
                << "expert " << expert.value << " slice " << s;
            const WidenedRange range = widen_to_blocks(extent, block);
            const uint64_t begin = place.direct ? offset - range.head : offset;
            const uint64_t length = place.direct ? range.length : extent.length;
            std::memset(outside.data() + begin, static_cast<int>(kUntouched), length);
        }
        const std::vector<std::byte> untouched(memory.size(), kUntouched);
        ASSERT_EQ(std::memcmp(outside.data(), untouched.data(), memory.size()), 0);
    }
    void fill(SlotIndex slot) const { std::ranges::fill(arena->slot(slot), kUntouched); }

    // Waits for exactly `count` completions.
    std::vector<LinkCompletion> collect(size_t count) {
        std::vector<LinkCompletion> all;
        std::vector<LinkCompletion> some(2);
        while (all.size() < count) {
            link->wait(milliseconds(1000));
            const size_t got = link->poll(some);
            for (size_t i = 0; i < got; ++i)
                all.push_back(std::move(some[i]));
        }
        EXPECT_EQ(link->poll(some), 0u);
        return all;
    }

    std::vector<std::unique_ptr<TestFile>> files;
    ExpertTable table;
    SlotLayout layout;
    std::optional<SlotArena> arena;
    SystemClock clock;
    ReaderFaultCounts counts;
    uint64_t block = 1;
    std::string_view backend;
    std::vector<std::string> notices;
    std::unique_ptr<Link> link;

private:
    // Two files; slices of whole blocks and others; the last expert of a file ends with it.
    explicit Rig(const RigOptions& options) {
        Prng prng(options.seed);
        uint64_t ends[2] = {prng.below(100) * 32, prng.below(100) * 32};
        table.experts_per_layer = options.experts_per_layer;
        table.layers.resize(4);
        for (LayerExperts& layer : table.layers) {
            for (int s = 0; s < 3; ++s) {
                const auto file = static_cast<uint32_t>(prng.below(2));
                const uint64_t unit = prng.chance(1, 2) ? 4096 : prng.chance(1, 2) ? 32 : 17;
                const uint64_t bytes = prng.between(1, options.slice_bytes_max / unit) * unit;
                const uint64_t offset = round_up(ends[file], 32);
                layer.slices.push_back({file, offset, bytes});
                ends[file] = offset + bytes * table.experts_per_layer;
            }
        }
        for (int f = 0; f < 2; ++f) {
            const std::string name = "model-" + std::to_string(f);
            std::vector<std::byte> bytes = random_bytes(options.seed + 10 * f, ends[f]);
            files.push_back(options.in_memory ? TestFile::in_memory(name, std::move(bytes))
                                              : std::make_unique<TestFile>(name, std::move(bytes)));
        }
    }

    Status open(const RigOptions& options) {
        std::vector<std::string> paths;
        for (const auto& file : files) {
            if (file == nullptr)
                return fail(ErrorCode::kIo, "no place for files in memory");
            paths.push_back(file->path());
        }
        Result<ModelFiles> model = open_model_files(paths, options.link);
        if (!model)
            return std::unexpected(model.error());
        block = model->block;
        notices = model->notices;
        Result<SlotLayout> planned = plan_slot_layout(table, block);
        if (!planned)
            return std::unexpected(planned.error());
        layout = *planned;
        Result<SlotArena> made = SlotArena::create(layout.slot_bytes, options.slots);
        if (!made)
            return std::unexpected(made.error());
        arena = std::move(*made);
        ReaderDecorator decorate;
        if (options.faults) {
            decorate = [&](std::unique_ptr<FileReader> reader) {
                return make_faulty_reader(std::move(reader), *options.faults, &counts);
            };
        }
        Result<OpenedLink> opened =
            make_file_link(std::move(*model), table, layout, *arena, options.link, clock, decorate);
        if (!opened)
            return std::unexpected(opened.error());
        link = std::move(opened->link);
        backend = opened->backend;
        notices.insert(notices.end(), opened->notices.begin(), opened->notices.end());
        return {};
    }
};

}  // namespace bevy
