#include "cli/profiles.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace bevy {
namespace {

constexpr const char* kHardware = R"({"comment": "c", "link_bytes_per_second": 1e9,
    "link_latency_us": 1.5, "transfers_inflight": 2, "memory_bytes_per_second": 1e10,
    "memory_contention": 0.25, "launch_us": 20, "pair_us": 0.5, "layer_us": 4, "head_us": 40})";

// kHardware with one piece replaced.
std::string changed(const std::string& from, const std::string& to) {
    std::string text = kHardware;
    text.replace(text.find(from), from.size(), to);
    return text;
}

void expect_refused(const std::string& text, const std::string& word) {
    const Result<HardwareProfile> profile = parse_hardware_profile(text, "box");
    ASSERT_FALSE(profile) << word;
    EXPECT_EQ(profile.error().code, ErrorCode::kCorruptFile);
    EXPECT_TRUE(profile.error().message.contains("box")) << profile.error().message;
    EXPECT_TRUE(profile.error().message.contains(word)) << profile.error().message;
}

TEST(Profiles, EveryBuiltInProfileIsValidAndSaysWhereItsNumbersComeFrom) {
    EXPECT_GE(hardware_profile_names().size(), 8u);
    for (const std::string& name : hardware_profile_names()) {
        const Result<HardwareProfile> profile = open_hardware_profile(name);
        ASSERT_TRUE(profile) << profile.error().text();
        EXPECT_EQ(profile->name, name);
        EXPECT_GT(profile->comment.size(), 40u);
    }
    EXPECT_GE(model_profile_names().size(), 6u);
    EXPECT_TRUE(open_model_profile("glm-4.5-air"));
    for (const std::string& name : model_profile_names()) {
        const Result<ModelProfile> profile = open_model_profile(name);
        ASSERT_TRUE(profile) << profile.error().text();
        EXPECT_EQ(profile->name, name);
        EXPECT_GT(profile->comment.size(), 40u);
    }
}

TEST(Profiles, UnitsAreThoseOfTheFieldNames) {
    const Result<HardwareProfile> profile = parse_hardware_profile(kHardware, "box");
    ASSERT_TRUE(profile) << profile.error().text();
    EXPECT_EQ(profile->link_bytes_per_second, 1'000'000'000u);
    EXPECT_EQ(profile->link_latency.ns, 1500);
    EXPECT_EQ(profile->memory_contention_per_mille, 250u);
    EXPECT_EQ(profile->pair.ns, 500);
    EXPECT_EQ(profile->head, microseconds(40));
}

TEST(Profiles, AMistakeInAFileNamesTheField) {
    expect_refused("{", "not JSON");
    expect_refused("[1]", "not a JSON object");
    expect_refused("", "not JSON");
    expect_refused(changed("\"pair_us\": 0.5,", ""), "no field 'pair_us'");
    expect_refused(changed("\"pair_us\": 0.5", "\"pair_us\": -1"), "'pair_us' is -1");
    expect_refused(changed("\"pair_us\": 0.5", "\"pair_us\": \"0.5\""),
                   "'pair_us' is not a number");
    expect_refused(changed("0.25", "1"), "'memory_contention' is 1");
    expect_refused(changed("\"comment\": \"c\"", "\"comment\": 3"), "'comment'");
    expect_refused(changed("{", "{\"pear_us\": 1, "), "unknown field 'pear_us'");
}

TEST(Profiles, AUniqueBeginningOfANameIsEnough) {
    const Result<HardwareProfile> apple = open_hardware_profile("apple-m");
    ASSERT_TRUE(apple) << apple.error().text();
    EXPECT_TRUE(apple->name.starts_with("apple-m"));
    const Result<HardwareProfile> ambiguous = open_hardware_profile("study-p");
    ASSERT_FALSE(ambiguous);
    EXPECT_TRUE(ambiguous.error().message.contains("more than one"));
}

TEST(Profiles, UnknownNamesListTheKnownOnes) {
    for (const char* name : {"toaster", ""}) {
        const Result<HardwareProfile> hardware = open_hardware_profile(name);
        ASSERT_FALSE(hardware);
        EXPECT_TRUE(hardware.error().hint.contains("study-p1")) << hardware.error().hint;
        const Result<ModelProfile> model = open_model_profile(name);
        ASSERT_FALSE(model);
        EXPECT_TRUE(model.error().hint.contains("gpt-oss-20b")) << model.error().hint;
    }
}

TEST(Profiles, AFileOfTheUsersWorksToo) {
    const std::filesystem::path path = std::filesystem::path(testing::TempDir()) /
                                       ("bevy-profile-" + std::to_string(getpid()) + ".json");
    std::ofstream(path) << kHardware;
    const Result<HardwareProfile> profile = open_hardware_profile(path.string());
    ASSERT_TRUE(profile) << profile.error().text();
    EXPECT_EQ(profile->name, path.stem().string());
    std::filesystem::remove(path);
    const Result<HardwareProfile> missing = open_hardware_profile(path.string());
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
    EXPECT_FALSE(open_hardware_profile(testing::TempDir() + "/"));
}

TEST(Profiles, ModelsRefuseMoreExpertsPerTokenThanThereAre) {
    const Result<ModelProfile> model =
        parse_model_profile(R"({"comment": "", "layers": 2, "experts": 4, "top_k": 5})", "odd");
    ASSERT_FALSE(model);
    EXPECT_TRUE(model.error().message.contains("'top_k'")) << model.error().message;
}

}  // namespace
}  // namespace bevy
