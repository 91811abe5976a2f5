// How a link comes to be: checks, fall-backs, and the faulty link around it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <thread>

#include "storage/faulty_link.h"
#include "storage/file_link.h"
#include "storage/reader_registry.h"
#include "storage/test_rig.h"

namespace bevy {
namespace {

// Runs `body` in a thread for which the system call `number`, when its second argument is
// `argument` (or whatever it is, for -1), fails with `error`, as a container's filter would make
// it. False: can't.
template <class Body>
bool with_refused_call(uint32_t number, int argument, uint32_t error, Body body) {
    bool installed = false;
    std::thread([&] {
        const auto deny = static_cast<uint32_t>(SECCOMP_RET_ERRNO) | error;
        const uint8_t skip_if_other = argument < 0 ? 0 : 1;
        sock_filter program[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(std::max(argument, 0)), 0,
                     skip_if_other),
            BPF_STMT(BPF_RET | BPF_K, deny),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        sock_fprog filter{static_cast<unsigned short>(std::size(program)), program};
        installed = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
        if (installed)
            body();
    }).join();
    return installed;
}

void expect_works(Rig& rig) {
    for (uint32_t e = 0; e < 12; ++e) {
        rig.fill(SlotIndex(2));
        rig.link->start(Ticket(0), ExpertId(e), SlotIndex(2));
        const auto done = rig.collect(1);
        ASSERT_FALSE(done[0].error) << done[0].error->text();
        rig.expect_holds(SlotIndex(2), ExpertId(e));
    }
}

TEST(file_link_setup, falls_back_to_threads_where_io_uring_is_refused) {
    const bool ran = with_refused_call(__NR_io_uring_setup, -1, EPERM, [] {
        Error error{};
        RigOptions options;
        std::unique_ptr<Rig> rig = Rig::make(options, &error);
        ASSERT_NE(rig, nullptr) << error.text();
        EXPECT_EQ(rig->backend, "pread");
        ASSERT_FALSE(rig->notices.empty());
        EXPECT_NE(rig->notices.back().find("io_uring is not available"), std::string::npos);
        expect_works(*rig);

        options.link.io = IoBackend::kUring;
        EXPECT_EQ(Rig::make(options, &error), nullptr);
        EXPECT_EQ(error.code, ErrorCode::kUnsupported);
        EXPECT_NE(error.hint.find("--io"), std::string::npos);
    });
    if (!ran)
        GTEST_SKIP() << "the kernel has no seccomp filters";
}

TEST(file_link_setup, works_without_registered_buffers_and_files) {
    Error error{};
    RigOptions options;
    options.link.io = IoBackend::kUring;
    if (Rig::make(options, &error) == nullptr)
        GTEST_SKIP() << error.text();
    constexpr int kRegisterBuffers = 0;
    constexpr int kRegisterFiles = 2;
    for (int operation : {kRegisterBuffers, kRegisterFiles}) {
        const bool ran = with_refused_call(__NR_io_uring_register, operation, ENOMEM, [&] {
            std::unique_ptr<Rig> rig = Rig::make(options, &error);
            ASSERT_NE(rig, nullptr) << error.text();
            const std::string what = operation == kRegisterFiles ? "files could" : "buffers could";
            const bool noticed = std::ranges::any_of(rig->notices, [&](const std::string& notice) {
                return notice.find(what) != std::string::npos;
            });
            // Buffered reads don't register buffers in the first place.
            EXPECT_EQ(noticed, operation == kRegisterFiles || rig->block > 1);
            expect_works(*rig);
        });
        if (!ran)
            GTEST_SKIP() << "the kernel has no seccomp filters";
    }
}

TEST(file_link_setup, reads_files_in_memory) {
    for (IoBackend io : {IoBackend::kAuto, IoBackend::kPread}) {
        Error error{};
        RigOptions options;
        options.link.io = io;
        options.in_memory = true;
        std::unique_ptr<Rig> rig = Rig::make(options, &error);
        if (rig == nullptr)
            GTEST_SKIP() << error.text();
        EXPECT_EQ(rig->block, 1u);
        EXPECT_FALSE(rig->notices.empty());
        expect_works(*rig);
    }
}

uint64_t cached_bytes(const TestFile& file) {
    const size_t length = file.bytes().size();
    const int fd = open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
    void* mapped = mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> state((length + page - 1) / page);
    mincore(mapped, length, state.data());
    munmap(mapped, length);
    return page * static_cast<uint64_t>(std::ranges::count_if(
                      state, [](unsigned char flags) { return (flags & 1) != 0; }));
}

void drop_cached(const TestFile& file) {
    const int fd = open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

TEST(file_link_setup, buffered_reads_leave_little_in_the_page_cache) {
    for (bool drop : {false, true}) {
        Error error{};
        RigOptions options;
        options.link.io = IoBackend::kPread;  // it drops pages before it reports them
        options.link.direct = DirectIo::kOff;
        options.link.drop_page_cache = drop;
        std::unique_ptr<Rig> rig = Rig::make(options, &error);
        ASSERT_NE(rig, nullptr) << error.text();
        for (const auto& file : rig->files)
            drop_cached(*file);
        if (cached_bytes(*rig->files[0]) + cached_bytes(*rig->files[1]) > 0)
            GTEST_SKIP() << "this file system keeps its pages: " << test_directory();
        for (uint32_t e = 0; e < rig->table.expert_count(); ++e) {
            rig->link->start(Ticket(0), ExpertId(e), SlotIndex(0));
            ASSERT_FALSE(rig->collect(1)[0].error);
        }
        const uint64_t cached = cached_bytes(*rig->files[0]) + cached_bytes(*rig->files[1]);
        if (drop)
            EXPECT_LT(cached, rig->table.total_bytes() / 4);
        else
            EXPECT_GE(cached, rig->table.total_bytes() * 3 / 4);
    }
}

TEST(file_link_setup, refuses_options_out_of_range) {
    const auto code = [](auto change) {
        LinkOptions options;
        change(options);
        const Status status = check_link_options(options);
        return status ? std::optional<ErrorCode>() : status.error().code;
    };
    EXPECT_EQ(code([](LinkOptions&) {}), std::nullopt);
    EXPECT_EQ(code([](LinkOptions& o) { o.transfers_inflight_max = 0; }),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([](LinkOptions& o) { o.transfers_inflight_max = 1025; }),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([](LinkOptions& o) { o.pieces_inflight_max = 0; }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([](LinkOptions& o) { o.piece_bytes = 100; }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code([](LinkOptions& o) { o.piece_bytes = 2 * kGiB; }), ErrorCode::kInvalidArgument);
}

struct SmallModel {
    explicit SmallModel(uint64_t file_bytes) : file("small", random_bytes(1, file_bytes)) {
        table.experts_per_layer = 4;
        table.layers.push_back({{ExpertSlice{0, 4096, 8192}}});
    }
    Result<OpenedLink> open(const SlotLayout& layout) {
        LinkOptions options;
        options.direct = DirectIo::kOff;
        auto files = open_model_files(std::vector{file.path()}, options);
        auto slots = SlotArena::create(layout.slot_bytes, 2);
        return make_file_link(std::move(*files), table, layout, *slots, options, clock);
    }
    TestFile file;
    ExpertTable table;
    SystemClock clock;
};

TEST(file_link_setup, refuses_a_file_that_is_too_short) {
    SmallModel model(4096 + 4 * 8192 - 1);
    const auto link = model.open(*plan_slot_layout(model.table, 1));
    ASSERT_FALSE(link);
    EXPECT_EQ(link.error().code, ErrorCode::kCorruptFile);
    EXPECT_NE(link.error().message.find(model.file.path()), std::string::npos);
}

TEST(file_link_setup, refuses_a_layout_of_another_model) {
    SmallModel model(4096 + 4 * 8192);
    const SlotLayout good = *plan_slot_layout(model.table, 1);
    EXPECT_TRUE(model.open(good));
    SlotLayout small = good;
    small.slot_bytes -= 64;
    SlotLayout shifted = good;
    shifted.layers[0][0].offsets[0] += 32;
    SlotLayout fewer = good;
    fewer.layers[0].clear();
    SlotLayout no_layer = good;
    no_layer.layers.clear();
    for (const SlotLayout& bad : {small, shifted, fewer, no_layer}) {
        const auto link = model.open(bad);
        ASSERT_FALSE(link);
        EXPECT_EQ(link.error().code, ErrorCode::kInvalidArgument);
    }
}

TEST(file_link_setup, plans_bounce_buffers_only_where_needed) {
    LinkOptions options;
    options.piece_bytes = kMiB;
    options.pieces_inflight_max = 8;
    SlotLayout layout{4096, {{{{0}, true}}, {{{0}, true}, {{2048}, true}}}};
    EXPECT_EQ(bounce_bytes(layout, options), 0u);
    layout.layers[1][1].direct = false;
    EXPECT_EQ(bounce_bytes(layout, options), 8 * kMiB);
}

TEST(file_link_setup, backends_are_found_by_name) {
    for (const ReaderRow& row : reader_rows()) {
        const auto found = registry_find(reader_rows(), "I/O backend", row.name);
        ASSERT_TRUE(found);
        EXPECT_EQ((*found)->value, row.value);
        EXPECT_EQ(&reader_row(row.value), *found);
    }
    EXPECT_FALSE(registry_find(reader_rows(), "I/O backend", "aio"));
}

TEST(faulty_link, delays_reorders_and_fails_as_told) {
    Error error{};
    RigOptions options;
    options.link.transfers_inflight_max = 6;
    std::unique_ptr<Rig> rig = Rig::make(options, &error);
    ASSERT_NE(rig, nullptr) << error.text();
    LinkFaults faults;
    faults.hold_polls_max = 5;
    faults.delay_max = microseconds(500);
    faults.fail_per_mille = 200;
    faults.failing = {ExpertId(3)};
    rig->link = make_faulty_link(std::move(rig->link), faults);
    uint32_t failures = 0;
    uint32_t successes = 0;
    bool reordered = false;
    for (uint32_t round = 0; round < 40; ++round) {
        for (uint32_t t = 0; t < 6; ++t) {
            rig->fill(SlotIndex(t));
            rig->link->start(Ticket(t), ExpertId(t), SlotIndex(t));
        }
        uint32_t place = 0;
        for (const LinkCompletion& done : rig->collect(6)) {
            reordered = reordered || done.ticket.value != place;
            ++place;
            if (done.error) {
                EXPECT_EQ(done.error->code, ErrorCode::kIo);
                ++failures;
            } else {
                EXPECT_NE(done.ticket.value, 3u);
                rig->expect_holds(SlotIndex(done.ticket.value), ExpertId(done.ticket.value));
                ++successes;
            }
        }
    }
    EXPECT_TRUE(reordered);
    EXPECT_GT(failures, 40u);
    EXPECT_GT(successes, 0u);
}

TEST(faulty_link, cancelled_transfers_still_complete_and_wakes_pass_through) {
    Error error{};
    std::unique_ptr<Rig> rig = Rig::make({}, &error);
    ASSERT_NE(rig, nullptr) << error.text();
    LinkFaults faults;
    faults.hold_polls_max = 8;
    rig->link = make_faulty_link(std::move(rig->link), faults);
    for (uint32_t round = 0; round < 20; ++round) {
        for (uint32_t t = 0; t < 4; ++t)
            rig->link->start(Ticket(t), ExpertId(t + round % 8), SlotIndex(t));
        rig->link->wait(milliseconds(1));
        rig->link->cancel(Ticket(round % 4));
        rig->collect(4);
    }
    rig->link->wake();
    rig->link->wait({INT64_MAX});
}

}  // namespace
}  // namespace bevy
