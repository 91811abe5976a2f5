#include "engine/machine_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/units.h"

namespace bevy {
namespace {

// A directory that looks like the root of a machine.
class MachineMemoryTest : public testing::Test {
protected:
    void SetUp() override {
        root_ = std::filesystem::path(testing::TempDir()) /
                ("bevy-machine-memory-" + std::to_string(::getpid()) + "-" +
                 std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
        std::filesystem::remove_all(root_);
        write("/proc/meminfo",
              "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n");
    }
    void TearDown() override { std::filesystem::remove_all(root_); }
    void write(const std::string& path, const std::string& text) {
        const std::filesystem::path file = root_.string() + path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text;
    }
    MachineMemory detect() { return detect_machine_memory(root_.string()).value(); }

    std::filesystem::path root_;
};

TEST_F(MachineMemoryTest, WithoutGroupsTheMachineDecides) {
    const MachineMemory memory = detect();
    EXPECT_EQ(memory.available_bytes, 8 * kGiB);
    EXPECT_FALSE(memory.group_limit_bytes);
    EXPECT_EQ(memory.source, "MemAvailable");
    EXPECT_EQ(memory.budget_bytes, 8 * kGiB - 8 * kGiB / 20);
}

TEST_F(MachineMemoryTest, TheTightestGroupOfVersion2Decides) {
    write("/proc/self/cgroup", "0::/outer/inner\n");
    write("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
    write("/sys/fs/cgroup/outer/inner/memory.current", "1000\n");
    write("/sys/fs/cgroup/outer/memory.max", std::to_string(2 * kGiB) + "\n");
    write("/sys/fs/cgroup/outer/memory.current", std::to_string(kGiB) + "\n");
    write("/sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file " +
                                                  std::to_string(512 * kMiB) + "\nactive_file " +
                                                  std::to_string(256 * kMiB) + "\n");
    const MachineMemory memory = detect();
    EXPECT_EQ(memory.group_limit_bytes, 2 * kGiB);
    // The file cache is counted as used, but gives way.
    EXPECT_EQ(memory.group_left_bytes, 2 * kGiB - 256 * kMiB);
    EXPECT_EQ(memory.source, "control group limit");
    EXPECT_EQ(memory.budget_bytes, 2 * kGiB - 256 * kMiB - 128 * kMiB);
}

TEST_F(MachineMemoryTest, InsideAContainerTheRootGroupIsTheOwnOne) {
    write("/proc/self/cgroup", "0::/\n");
    write("/sys/fs/cgroup/memory.max", std::to_string(kGiB) + "\n");
    write("/sys/fs/cgroup/memory.current", "0\n");
    EXPECT_EQ(detect().group_left_bytes, kGiB);
}

TEST_F(MachineMemoryTest, Version1IsUnderstoodToo) {
    write("/proc/self/cgroup", "5:cpu,cpuacct:/job\n4:memory:/job\n0::/elsewhere\n");
    write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "123\n");
    write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(4 * kGiB) + "\n");
    write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(kGiB) + "\n");
    const MachineMemory memory = detect();
    EXPECT_EQ(memory.group_limit_bytes, 4 * kGiB);
    EXPECT_EQ(memory.group_left_bytes, 3 * kGiB);
}

TEST_F(MachineMemoryTest, AGroupWithMoreThanTheMachineDoesNotDecide) {
    write("/proc/self/cgroup", "0::/\n");
    write("/sys/fs/cgroup/memory.max", std::to_string(64 * kGiB) + "\n");
    write("/sys/fs/cgroup/memory.current", "0\n");
    EXPECT_EQ(detect().source, "MemAvailable");
}

TEST_F(MachineMemoryTest, AMachineThatSaysNothingIsAnErrorWithARemedy) {
    write("/proc/meminfo", "nonsense\nMemAvailable:\n");
    const Result<MachineMemory> memory = detect_machine_memory(root_.string());
    ASSERT_FALSE(memory);
    EXPECT_TRUE(memory.error().hint.contains("--memory"));
}

}  // namespace
}  // namespace bevy
