// What every combination of backend and kind of read must do: the contract of storage/link.h.
#include "storage/file_link.h"

#include <gtest/gtest.h>

#include <csignal>
#include <thread>
#include <tuple>

#include "storage/reader_registry.h"
#include "storage/test_rig.h"

namespace bevy {
namespace {

using Variant = std::tuple<IoBackend, DirectIo, bool>;  // the last: with a faulty reader

std::string variant_name(const testing::TestParamInfo<Variant>& info) {
    const auto [io, direct, faulty] = info.param;
    return std::string(reader_row(io).name) + (direct == DirectIo::kOn ? "_direct" : "_buffered") +
           (faulty ? "_faulty" : "");
}

class FileLinkTest : public testing::TestWithParam<Variant> {
protected:
    RigOptions options(uint64_t seed) const {
        const auto [io, direct, faulty] = GetParam();
        RigOptions options;
        options.seed = seed;
        options.link.io = io;
        options.link.direct = direct;
        options.link.transfers_inflight_max = 5;
        options.link.pieces_inflight_max = 4;
        options.link.piece_bytes = 16 * kKiB;
        if (faulty) {
            options.faults = ReaderFaults{.seed = seed,
                                          .short_per_mille = 300,
                                          .error_per_mille = 200,
                                          .interrupt_per_mille = 200,
                                          .hold_polls_max = 3,
                                          .bad_ranges = {}};
        }
        return options;
    }

    // Null after having skipped the test: only for want of io_uring or direct reads.
    std::unique_ptr<Rig> make_rig(const RigOptions& wanted) {
        Error error{};
        std::unique_ptr<Rig> rig = Rig::make(wanted, &error);
        if (rig == nullptr) {
            EXPECT_EQ(error.code, ErrorCode::kUnsupported) << error.text();
            std::cerr << "skipped: " << error.text() << "\n";
        }
        return rig;
    }
};

#define MAKE_RIG_OR_SKIP(rig, wanted)            \
    std::unique_ptr<Rig> rig = make_rig(wanted); \
    if (rig == nullptr)                          \
    GTEST_SKIP() << "refused by the kernel or the file system"

TEST_P(FileLinkTest, every_expert_arrives_whole_and_alone) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
        SCOPED_TRACE(seed);
        MAKE_RIG_OR_SKIP(rig, options(seed));
        Prng prng(seed);
        struct Going {
            ExpertId expert;
            SlotIndex slot;
        };
        std::vector<std::optional<Going>> going(rig->link->transfers_inflight_max());
        std::vector<bool> slot_used(rig->arena->slots(), false);
        uint32_t started = 0;
        uint32_t finished = 0;
        const uint32_t total = 3 * rig->table.expert_count();
        std::vector<LinkCompletion> out(3);
        while (finished < total) {
            for (uint32_t t = 0; t < going.size() && started < total; ++t) {
                if (going[t] || prng.chance(1, 4))
                    continue;
                auto slot = static_cast<uint32_t>(prng.below(slot_used.size()));
                while (slot_used[slot])
                    slot = (slot + 1) % static_cast<uint32_t>(slot_used.size());
                slot_used[slot] = true;
                going[t] = Going{ExpertId(started++ % rig->table.expert_count()), SlotIndex(slot)};
                rig->fill(going[t]->slot);
                rig->link->start(Ticket(t), going[t]->expert, going[t]->slot);
            }
            rig->link->wait(milliseconds(20));
            const size_t count = rig->link->poll(out);
            for (size_t i = 0; i < count; ++i) {
                const LinkCompletion& done = out[i];
                ASSERT_FALSE(done.error) << done.error->text();
                std::optional<Going>& what = going[done.ticket.value];
                ASSERT_TRUE(what.has_value());
                rig->expect_holds(what->slot, what->expert);
                EXPECT_GE(
                    done.bytes_read,
                    rig->table.layers[rig->table.layer_of(what->expert).value].bytes_per_expert());
                EXPECT_LE(done.started, done.finished);
                slot_used[what->slot.value] = false;
                what.reset();
                ++finished;
            }
        }
        if (std::get<bool>(GetParam())) {
            EXPECT_GT(rig->counts.shorts, 0u);
            EXPECT_GT(rig->counts.errors, 0u);
            EXPECT_GT(rig->counts.interrupts, 0u);
        }
    }
}

TEST_P(FileLinkTest, experts_larger_than_all_pieces_in_flight_arrive) {
    RigOptions wanted = options(7);
    wanted.slice_bytes_max = 400'000;
    wanted.experts_per_layer = 2;
    MAKE_RIG_OR_SKIP(rig, wanted);
    for (uint32_t e = 0; e < rig->table.expert_count(); ++e) {
        rig->fill(SlotIndex(3));
        rig->link->start(Ticket(1), ExpertId(e), SlotIndex(3));
        const auto done = rig->collect(1);
        ASSERT_FALSE(done[0].error) << done[0].error->text();
        rig->expect_holds(SlotIndex(3), ExpertId(e));
    }
}

TEST_P(FileLinkTest, a_wait_ends_by_its_timeout) {
    MAKE_RIG_OR_SKIP(rig, options(1));
    std::vector<LinkCompletion> out(1);
    rig->link->wait(milliseconds(3));
    rig->link->wait(Duration{0});
    rig->link->wait(Duration{-5});
    EXPECT_EQ(rig->link->poll(out), 0u);
}

TEST_P(FileLinkTest, a_wake_before_the_wait_is_not_lost) {
    MAKE_RIG_OR_SKIP(rig, options(1));
    std::vector<LinkCompletion> out(1);
    for (int round = 0; round < 3; ++round) {
        rig->link->wake();
        rig->link->wake();
        rig->link->poll(out);
        rig->link->wait({INT64_MAX});
    }
}

TEST_P(FileLinkTest, a_wake_from_another_thread_ends_the_wait) {
    MAKE_RIG_OR_SKIP(rig, options(1));
    for (int round = 0; round < 20; ++round) {
        std::thread waker([&] { rig->link->wake(); });
        rig->link->wait({INT64_MAX});
        waker.join();
    }
}

Link* link_to_wake = nullptr;

TEST_P(FileLinkTest, a_wake_from_a_signal_handler_ends_the_wait) {
#ifdef __SANITIZE_THREAD__
    // It runs handlers at the next call that it intercepts; waiting for the ring is not one, so a
    // signal that comes while this thread waits would be kept back for ever.
    GTEST_SKIP() << "ThreadSanitizer keeps signals back while a thread waits for the ring";
#endif
    MAKE_RIG_OR_SKIP(rig, options(1));
    link_to_wake = rig->link.get();
    const auto before = std::signal(SIGUSR1, [](int) { link_to_wake->wake(); });
    const pthread_t self = pthread_self();
    std::thread sender([self] { pthread_kill(self, SIGUSR1); });
    rig->link->wait({INT64_MAX});
    sender.join();
    std::signal(SIGUSR1, before);
}

TEST_P(FileLinkTest, a_transfer_that_has_not_begun_is_cancelled) {
    RigOptions wanted = options(3);
    wanted.link.pieces_inflight_max = 1;
    wanted.slice_bytes_max = 400'000;
    wanted.experts_per_layer = 2;
    MAKE_RIG_OR_SKIP(rig, wanted);
    rig->fill(SlotIndex(1));
    rig->link->start(Ticket(0), ExpertId(0), SlotIndex(0));
    rig->link->start(Ticket(1), ExpertId(1), SlotIndex(1));
    rig->link->cancel(Ticket(1));
    rig->link->cancel(Ticket(1));
    for (const LinkCompletion& done : rig->collect(2)) {
        EXPECT_EQ(done.error.has_value(), done.ticket == Ticket(1));
        if (done.error) {
            EXPECT_EQ(done.error->code, ErrorCode::kCancelled);
            EXPECT_EQ(done.bytes_read, 0u);
            EXPECT_EQ(rig->arena->slot(SlotIndex(1))[0], Rig::kUntouched);
        }
    }
    // The ticket and the slot are free again.
    rig->fill(SlotIndex(1));
    rig->link->start(Ticket(1), ExpertId(1), SlotIndex(1));
    EXPECT_FALSE(rig->collect(1)[0].error);
    rig->expect_holds(SlotIndex(1), ExpertId(1));
}

TEST_P(FileLinkTest, cancelling_at_any_time_gives_one_completion) {
    MAKE_RIG_OR_SKIP(rig, options(4));
    Prng prng(4);
    std::vector<LinkCompletion> out(1);
    for (uint32_t round = 0; round < 60; ++round) {
        const ExpertId expert(round % rig->table.expert_count());
        std::vector<LinkCompletion> all;
        for (uint32_t t = 0; t < 5; ++t) {
            rig->fill(SlotIndex(t));
            rig->link->start(Ticket(t), expert, SlotIndex(t));
            if (prng.chance(1, 3))
                rig->link->wait(microseconds(static_cast<int64_t>(prng.below(300))));
            rig->link->cancel(Ticket(static_cast<uint32_t>(prng.below(t + 1))));
        }
        for (const LinkCompletion& done : rig->collect(5)) {
            if (done.error)
                EXPECT_EQ(done.error->code, ErrorCode::kCancelled);
            else
                rig->expect_holds(SlotIndex(done.ticket.value), expert);
        }
    }
}

TEST_P(FileLinkTest, a_file_cut_off_after_opening_is_an_error) {
    MAKE_RIG_OR_SKIP(rig, options(5));
    for (const auto& file : rig->files)
        file->truncate(100);
    const ExpertId last(rig->table.expert_count() - 1);
    rig->link->start(Ticket(0), last, SlotIndex(0));
    const LinkCompletion done = rig->collect(1)[0];
    ASSERT_TRUE(done.error);
    EXPECT_EQ(done.error->code, ErrorCode::kCorruptFile);
    EXPECT_NE(done.error->message.find("model-"), std::string::npos) << done.error->text();
    EXPECT_NE(done.error->message.find("offset"), std::string::npos) << done.error->text();
}

TEST_P(FileLinkTest, a_bad_range_fails_the_experts_that_lie_there_and_no_others) {
    RigOptions wanted = options(6);
    ReaderFaults faults = wanted.faults.value_or(ReaderFaults{});
    // One byte in the middle of the second expert; widened neighbours may see it too.
    const std::unique_ptr<Rig> plan = make_rig(wanted);
    if (plan == nullptr)
        GTEST_SKIP() << "refused by the kernel or the file system";
    const Extent victim = plan->table.layers[0].slices[0].extent(ExpertIndex(1));
    faults.bad_ranges.push_back({victim.file, victim.offset + victim.length / 2, 1});
    wanted.faults = faults;
    MAKE_RIG_OR_SKIP(rig, wanted);
    rig->fill(SlotIndex(4));
    rig->link->start(Ticket(0), ExpertId(1), SlotIndex(0));
    rig->link->start(Ticket(1), ExpertId(7), SlotIndex(4));
    for (const LinkCompletion& done : rig->collect(2)) {
        ASSERT_EQ(done.error.has_value(), done.ticket == Ticket(0));
        if (done.error) {
            EXPECT_EQ(done.error->code, ErrorCode::kIo);
            EXPECT_NE(done.error->message.find("Input/output error"), std::string::npos);
            EXPECT_NE(done.error->message.find("expert 1 of MoE layer 0"), std::string::npos);
        }
    }
    rig->expect_holds(SlotIndex(4), ExpertId(7));
}

TEST_P(FileLinkTest, destruction_waits_for_reads_in_flight) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
        MAKE_RIG_OR_SKIP(rig, options(seed));
        for (uint32_t t = 0; t < 5; ++t)
            rig->link->start(Ticket(t), ExpertId(t), SlotIndex(t));
        rig->link.reset();
        rig->arena.reset();
    }
}

INSTANTIATE_TEST_SUITE_P(all, FileLinkTest,
                         testing::Combine(testing::Values(IoBackend::kUring, IoBackend::kPread),
                                          testing::Values(DirectIo::kOn, DirectIo::kOff),
                                          testing::Bool()),
                         variant_name);

}  // namespace
}  // namespace bevy
