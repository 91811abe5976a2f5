#include "model/replay_chain.h"

#include <charconv>
#include <format>

#include "model/byte_vocabulary.h"

namespace bevy {

namespace {

constexpr std::string_view kKeyRequests = "bevy.replay.requests";
constexpr std::string_view kKeySteps = "bevy.replay.steps";

// Cuts a number and the letter behind it off `text`.
std::optional<uint32_t> take_number(std::string_view& text, char end) {
    uint32_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || stop == text.data() + text.size() || *stop != end)
        return std::nullopt;
    text.remove_prefix(static_cast<size_t>(stop - text.data()) + 1);
    return value;
}

}  // namespace

uint32_t ReplayChains::token(ReplayPlace place) const {
    return kByteVocabularyFirstWhole + code(place);
}

uint32_t ReplayChains::code_of_token(uint32_t token) const {
    const std::optional<ReplayPlace> found = find(token);
    return found ? code(*found) : token % codes();
}

std::optional<ReplayPlace> ReplayChains::find(uint32_t token) const {
    if (token < kByteVocabularyFirstWhole || token - kByteVocabularyFirstWhole >= codes())
        return std::nullopt;
    return place(token - kByteVocabularyFirstWhole);
}

std::string ReplayChains::text(ReplayPlace place) {
    return std::format("<{}:{}>", place.request, place.step);
}

std::vector<std::string> ReplayChains::texts() const {
    std::vector<std::string> all;
    all.reserve(codes());
    for (uint32_t code = 0; code < codes(); ++code)
        all.push_back(text(place(code)));
    return all;
}

std::optional<ReplayPlace> ReplayChains::take(std::string_view& text) const {
    std::string_view rest = text;
    if (!rest.starts_with('<'))
        return std::nullopt;
    rest.remove_prefix(1);
    const std::optional<uint32_t> request = take_number(rest, ':');
    const std::optional<uint32_t> step = request ? take_number(rest, '>') : std::nullopt;
    if (!step || *request >= requests || *step >= steps)
        return std::nullopt;
    text = rest;
    return ReplayPlace{*request, *step};
}

void ReplayChains::write(MetadataWriter& writer) const {
    writer.set_u32(kKeyRequests, requests);
    writer.set_u32(kKeySteps, steps);
}

Result<ReplayChains> ReplayChains::read(const Metadata& metadata) {
    if (!metadata.has(kKeyRequests))
        return fail(ErrorCode::kUnsupported, "'" + metadata.path() + "' is not a replay model",
                    "name a file that bevy make-model replay has written");
    const Result<uint32_t> requests = metadata.u32(kKeyRequests);
    const Result<uint32_t> steps = metadata.u32(kKeySteps);
    if (!requests || !steps)
        return std::unexpected(!requests ? requests.error() : steps.error());
    uint32_t codes = 0;
    if (*requests == 0 || *steps == 0 || __builtin_mul_overflow(*requests, *steps, &codes))
        return fail(ErrorCode::kCorruptFile,
                    "'" + metadata.path() + "' has an impossible number of replayed steps",
                    "make it again");
    return ReplayChains{*requests, *steps};
}

}  // namespace bevy
