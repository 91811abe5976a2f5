#include "base/route_trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/prng.h"

namespace bevy {
namespace {

// 2 layers, 4 experts, 2 per token; requests of 1 and 2 tokens.
RouteTrace small_trace() {
    RouteTrace trace{.layers = 2, .experts = 4, .top_k = 2};
    trace.requests.push_back({1, {0, 1, 3, 2}});
    trace.requests.push_back({2, {1, 0, 2, 3, 0, 3, 1, 2}});
    return trace;
}

std::vector<std::byte> bytes_of(std::initializer_list<uint32_t> head,
                                std::initializer_list<int> routes) {
    std::vector<std::byte> bytes;
    for (const char c : std::string("RTR1"))
        bytes.push_back(static_cast<std::byte>(c));
    for (const uint32_t number : head) {
        for (int shift = 0; shift < 32; shift += 8)
            bytes.push_back(static_cast<std::byte>(number >> shift));
    }
    for (const int route : routes)
        bytes.push_back(static_cast<std::byte>(route));
    return bytes;
}

void expect_refused(const std::vector<std::byte>& bytes, ErrorCode code, const std::string& word) {
    const Result<RouteTrace> trace = parse_route_trace(bytes, "f.rtrace");
    ASSERT_FALSE(trace.has_value()) << word;
    EXPECT_EQ(trace.error().code, code) << trace.error().message;
    EXPECT_TRUE(trace.error().message.starts_with("f.rtrace: ")) << trace.error().message;
    EXPECT_NE(trace.error().message.find(word), std::string::npos) << trace.error().message;
}

class RouteTraceFile : public testing::Test {
protected:
    RouteTraceFile() { std::filesystem::create_directory(folder_); }
    ~RouteTraceFile() override { std::filesystem::remove_all(folder_); }

    const std::filesystem::path folder_ =
        std::filesystem::temp_directory_path() / ("bevy-route-trace-" + std::to_string(getpid()));
    const std::string path_ = folder_ / "t.rtrace";
};

TEST_F(RouteTraceFile, WhatIsWrittenIsReadAgain) {
    const RouteTrace written = small_trace();
    ASSERT_TRUE(write_route_trace(written, path_).has_value());
    const Result<RouteTrace> read = read_route_trace(path_);
    ASSERT_TRUE(read.has_value()) << read.error().text();
    EXPECT_EQ(read->layers, 2u);
    EXPECT_EQ(read->experts, 4u);
    EXPECT_EQ(read->top_k, 2u);
    EXPECT_EQ(read->tokens(), 3u);
    ASSERT_EQ(read->requests.size(), 2u);
    EXPECT_EQ(read->requests[1].bytes, written.requests[1].bytes);
    const std::span<const uint8_t> route = read->route(1, 1, 0);
    EXPECT_EQ(std::vector(route.begin(), route.end()), (std::vector<uint8_t>{0, 3}));
}

TEST_F(RouteTraceFile, FilesThatAreNotThereOrNoFilesAreNamed) {
    const Result<RouteTrace> missing = read_route_trace(path_);
    ASSERT_FALSE(missing.has_value());
    EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
    EXPECT_NE(missing.error().message.find(path_), std::string::npos);
    const Result<RouteTrace> directory = read_route_trace(folder_);
    ASSERT_FALSE(directory.has_value());
    EXPECT_NE(directory.error().message.find(folder_), std::string::npos);
    const Status unwritable = write_route_trace(small_trace(), folder_ / "none" / "t.rtrace");
    ASSERT_FALSE(unwritable.has_value());
    EXPECT_NE(unwritable.error().message.find("none"), std::string::npos);
}

TEST_F(RouteTraceFile, AFullDiskIsAnError) {
    const Status status = write_route_trace(small_trace(), "/dev/full");
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::kIo);
}

TEST(RouteTrace, TheFormatIsTheDocumentedOne) {
    const Result<RouteTrace> trace =
        parse_route_trace(bytes_of({1, 2, 4, 2, 1}, {0, 1, 3, 2}), "f.rtrace");
    ASSERT_TRUE(trace.has_value()) << trace.error().text();
    EXPECT_EQ(trace->requests[0].bytes, (std::vector<uint8_t>{0, 1, 3, 2}));
}

TEST(RouteTrace, WhatIsWrongWithAFileIsSaid) {
    std::vector<std::byte> other = bytes_of({1, 2, 4, 2, 1}, {0, 1, 3, 2});
    other[3] = std::byte{'2'};
    expect_refused(other, ErrorCode::kCorruptFile, "RTR1");
    expect_refused({}, ErrorCode::kCorruptFile, "RTR1");
    expect_refused(bytes_of({1, 2, 4}, {}), ErrorCode::kCorruptFile, "head");
    expect_refused(bytes_of({0, 2, 4, 2}, {}), ErrorCode::kCorruptFile, "zero");
    expect_refused(bytes_of({1, 0, 4, 2, 1}, {}), ErrorCode::kCorruptFile, "zero");
    expect_refused(bytes_of({1, 2, 0, 2, 1}, {}), ErrorCode::kCorruptFile, "zero");
    expect_refused(bytes_of({1, 2, 4, 0, 1}, {}), ErrorCode::kCorruptFile, "zero");
    expect_refused(bytes_of({1, 2, 4, 2, 0}, {}), ErrorCode::kCorruptFile, "no tokens");
    expect_refused(bytes_of({1, 2, 257, 2, 1}, {0, 1, 3, 2}), ErrorCode::kUnsupported, "257");
    expect_refused(bytes_of({1, 2, 4, 5, 1}, {}), ErrorCode::kCorruptFile, "5 experts per token");
    expect_refused(bytes_of({1, 2, 4, 2, 1}, {0, 1, 3}), ErrorCode::kCorruptFile, "request 0 of 1");
    expect_refused(bytes_of({2, 2, 4, 2, 1}, {0, 1, 3, 2}), ErrorCode::kCorruptFile,
                   "request 1 of 2");
    expect_refused(bytes_of({1, 2, 4, 2, 1}, {0, 1, 3, 4}), ErrorCode::kCorruptFile,
                   "layer 1: expert 4");
    expect_refused(bytes_of({1, 2, 4, 2, 1}, {0, 1, 3, 3}), ErrorCode::kCorruptFile, "twice");
    expect_refused(bytes_of({1, 2, 4, 2, 1}, {0, 1, 3, 2, 0}), ErrorCode::kCorruptFile,
                   "1 bytes follow");
}

TEST(RouteTrace, SizesThatOverflowAreATruncatedFile) {
    constexpr uint32_t kMax = 0xFFFFFFFF;
    expect_refused(bytes_of({kMax, kMax, 256, 256, kMax}, {0, 1}), ErrorCode::kCorruptFile, "ends");
}

TEST(RouteTrace, ATraceThatBreaksTheInvariantIsNotWritten) {
    RouteTrace trace = small_trace();
    trace.requests[1].bytes.pop_back();
    EXPECT_FALSE(check_route_trace(trace, "t").has_value());
    trace = small_trace();
    trace.requests.clear();
    EXPECT_FALSE(check_route_trace(trace, "t").has_value());
    trace = small_trace();
    trace.requests[0].bytes[1] = 0;
    EXPECT_FALSE(check_route_trace(trace, "t").has_value());
    EXPECT_TRUE(check_route_trace(small_trace(), "t").has_value());
}

TEST(RouteTrace, DamagedBytesGiveAnErrorOrAValidTrace) {
    const std::vector<std::byte> good = bytes_of({1, 2, 4, 2, 1}, {0, 1, 3, 2});
    Prng prng(1);
    for (int round = 0; round < 20000; round++) {
        std::vector<std::byte> bytes = good;
        for (uint64_t i = prng.between(1, 3); i > 0; i--)
            bytes[prng.below(bytes.size())] = static_cast<std::byte>(prng.next());
        bytes.resize(prng.chance(1, 4) ? prng.below(bytes.size()) : bytes.size());
        const Result<RouteTrace> trace = parse_route_trace(bytes, "f");
        ASSERT_TRUE(!trace || check_route_trace(*trace, "f"));
    }
}

}  // namespace
}  // namespace bevy
