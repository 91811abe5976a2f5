#include "storage/model_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "storage/test_files.h"

namespace bevy {
namespace {

using Paths = std::vector<std::string>;

LinkOptions with_direct(DirectIo direct) {
    LinkOptions options;
    options.direct = direct;
    return options;
}

bool is_direct(const OpenFile& file) {
    return (fcntl(file.fd.get(), F_GETFL) & O_DIRECT) != 0;
}

TEST(model_files, buffered_needs_no_alignment) {
    const TestFile file("buffered", random_bytes(1, 10'000));
    const auto model = open_model_files(Paths{file.path()}, with_direct(DirectIo::kOff));
    ASSERT_TRUE(model) << model.error().text();
    EXPECT_FALSE(model->direct);
    EXPECT_EQ(model->block, 1u);
    EXPECT_EQ(model->files[0].bytes, 10'000u);
    EXPECT_FALSE(is_direct(model->files[0]));
    EXPECT_TRUE(model->notices.empty());
}

TEST(model_files, auto_and_on_agree_about_the_disk) {
    const TestFile first("first", random_bytes(1, 10'000));
    const TestFile second("second", random_bytes(2, 20'000));
    const Paths paths{first.path(), second.path()};
    const auto chosen = open_model_files(paths, with_direct(DirectIo::kAuto));
    const auto forced = open_model_files(paths, with_direct(DirectIo::kOn));
    ASSERT_TRUE(chosen) << chosen.error().text();
    EXPECT_EQ(chosen->direct, forced.has_value());
    EXPECT_EQ(chosen->direct, chosen->notices.empty());
    EXPECT_EQ(chosen->direct, chosen->block > 1);
    for (const OpenFile& file : chosen->files)
        EXPECT_EQ(is_direct(file), chosen->direct);
}

TEST(model_files, files_in_memory_are_read_buffered_with_a_notice) {
    const TestFile on_disk("disk", random_bytes(1, 10'000));
    const auto in_memory = TestFile::in_memory("memory", random_bytes(2, 10'000));
    if (!in_memory)
        GTEST_SKIP() << "/dev/shm is not a tmpfs one can write to";
    const Paths paths{on_disk.path(), in_memory->path()};
    const auto chosen = open_model_files(paths, with_direct(DirectIo::kAuto));
    ASSERT_TRUE(chosen) << chosen.error().text();
    EXPECT_FALSE(chosen->direct);
    EXPECT_TRUE(chosen->in_memory);
    EXPECT_EQ(chosen->block, 1u);
    EXPECT_FALSE(is_direct(chosen->files[0]));
    ASSERT_EQ(chosen->notices.size(), 1u);
    const auto forced = open_model_files(paths, with_direct(DirectIo::kOn));
    ASSERT_FALSE(forced);
    EXPECT_EQ(forced.error().code, ErrorCode::kUnsupported);
    EXPECT_FALSE(forced.error().hint.empty());
}

TEST(model_files, names_what_cannot_be_opened) {
    const std::string absent = test_directory() + "/absent.gguf";
    const auto missing = open_model_files(Paths{absent}, {});
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
    EXPECT_NE(missing.error().message.find(absent), std::string::npos);
    const auto directory = open_model_files(Paths{test_directory()}, {});
    ASSERT_FALSE(directory);
    EXPECT_EQ(directory.error().code, ErrorCode::kInvalidArgument);
    const std::string pipe = test_directory() + "/pipe-" + std::to_string(getpid());
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const auto fifo = open_model_files(Paths{pipe}, {});
    unlink(pipe.c_str());
    ASSERT_FALSE(fifo);
    EXPECT_EQ(fifo.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace bevy
