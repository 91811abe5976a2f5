// bevy make-model verify-replay: whether what an engine generated from a replay model follows its
// chains.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <expected>
#include <format>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "model/header_reader.h"
#include "model/model_file.h"
#include "model/replay_chain.h"

namespace bevy {
namespace {

// One reply, as far as it is known.
struct Reply {
    std::optional<ReplayPlace> before;  // the last token of the prompt
    std::vector<ReplayPlace> places;
};

using ReplyOrCause = std::expected<Reply, std::string>;

// Where the last token of a prompt is; every byte that is not of a chain is a token.
std::optional<ReplayPlace> end_of_prompt(const ReplayChains& chains, std::string_view prompt) {
    if (prompt.empty())
        return std::nullopt;
    if (const size_t at = prompt.rfind('<'); at != std::string_view::npos) {
        std::string_view rest = prompt.substr(at);
        const std::optional<ReplayPlace> place = chains.take(rest);
        if (place && rest.empty())
            return place;
    }
    return chains.place(chains.code_of_token(static_cast<unsigned char>(prompt.back())));
}

ReplyOrCause reply_of_text(const ReplayChains& chains, std::string_view text) {
    Reply reply;
    while (!text.empty()) {
        const std::optional<ReplayPlace> place = chains.take(text);
        if (!place)
            return std::unexpected(std::format("after {} tokens of a chain comes '{}'",
                                               reply.places.size(), printable(text.substr(0, 40))));
        reply.places.push_back(*place);
    }
    return reply;
}

ReplyOrCause reply_of_json(const ReplayChains& chains, const std::string& line) {
    const nlohmann::json reply = nlohmann::json::parse(line, nullptr, false);
    if (!reply.is_object())
        return std::unexpected("it is not a JSON object");
    for (const char* key : {"text", "content"}) {
        const auto text = reply.find(key);
        if (text == reply.end() || !text->is_string())
            continue;
        ReplyOrCause result = reply_of_text(chains, text->get<std::string>());
        const auto prompt = reply.find("prompt");
        if (result && prompt != reply.end() && prompt->is_string())
            result->before = end_of_prompt(chains, prompt->get<std::string>());
        return result;
    }
    return std::unexpected("it has neither \"text\" nor \"content\"");
}

// Numbers of tokens between spaces, commas or brackets.
ReplyOrCause reply_of_numbers(const ReplayChains& chains, std::string_view line) {
    constexpr std::string_view kBetween = " ,[]\t\r";
    Reply reply;
    for (size_t at = line.find_first_not_of(kBetween); at != std::string_view::npos;
         at = line.find_first_not_of(kBetween, at)) {
        uint32_t token = 0;
        const char* end = line.data() + line.size();
        const auto [stop, error] = std::from_chars(line.data() + at, end, token);
        if (error != std::errc{} || (stop != end && !kBetween.contains(*stop)))
            return std::unexpected(std::format("'{}' is neither JSON nor the number of a token",
                                               printable(line.substr(at, 40))));
        const std::optional<ReplayPlace> place = chains.find(token);
        if (!place)
            return std::unexpected(std::format("after {} tokens of a chain comes token {}",
                                               reply.places.size(), token));
        reply.places.push_back(*place);
        at = static_cast<size_t>(stop - line.data());
    }
    return reply;
}

// What is wrong with a reply; nothing: it follows its chain.
std::optional<std::string> fault_of(const ReplayChains& chains, const Reply& reply) {
    if (reply.places.empty())
        return "no tokens were generated";
    std::optional<ReplayPlace> before = reply.before;
    for (size_t i = 0; i < reply.places.size(); ++i) {
        if (before && reply.places[i] != chains.next(*before))
            return std::format("token {} is {}, but after {} comes {}", i + 1,
                               ReplayChains::text(reply.places[i]), ReplayChains::text(*before),
                               ReplayChains::text(chains.next(*before)));
        before = reply.places[i];
    }
    return std::nullopt;
}

struct Checked {
    uint64_t replies = 0;
    uint64_t tokens = 0;
    uint64_t faults = 0;
};

Checked check_lines(const ReplayChains& chains, std::istream& lines) {
    Checked checked;
    std::string line;
    for (uint64_t number = 1; std::getline(lines, line); ++number) {
        if (line.find_first_not_of(" \t\r") == std::string::npos)
            continue;
        const ReplyOrCause reply =
            line.starts_with('{') ? reply_of_json(chains, line) : reply_of_numbers(chains, line);
        const std::optional<std::string> fault =
            reply ? fault_of(chains, *reply) : std::optional(reply.error());
        ++checked.replies;
        if (fault) {
            ++checked.faults;
            std::printf("line %llu: %s\n", static_cast<unsigned long long>(number), fault->c_str());
        } else {
            checked.tokens += reply->places.size();
        }
    }
    return checked;
}

}  // namespace

int verify_replay_command(const VerifyReplayOptions& options) {
    const Result<ModelFile> model = ModelFile::open(options.model);
    const Result<ReplayChains> chains = model
                                            ? ReplayChains::read(model->metadata())
                                            : Result<ReplayChains>(std::unexpected(model.error()));
    if (!chains) {
        print_error(chains.error());
        return kExitFailure;
    }
    std::ifstream file;
    const bool is_file = options.input != "-";
    if (is_file) {
        file.open(options.input);
        if (!file) {
            print_error(
                {ErrorCode::kNotFound, "can't read '" + options.input + "'", "check the path"});
            return kExitFailure;
        }
    }
    const Checked checked = check_lines(*chains, is_file ? file : std::cin);
    if (checked.replies == 0) {
        print_error({ErrorCode::kInvalidArgument, "there is no reply to check",
                     "pipe in what bevy run --jsonl prints, or name a file that has it"});
        return kExitFailure;
    }
    if (checked.faults > 0) {
        print_error({ErrorCode::kCorruptFile,
                     std::format("{} of {} replies do not follow their chains", checked.faults,
                                 checked.replies),
                     "was it this model, with --temp 0?"});
        return kExitFailure;
    }
    std::printf("%llu replies follow their chains: %llu tokens\n",
                static_cast<unsigned long long>(checked.replies),
                static_cast<unsigned long long>(checked.tokens));
    return kExitOk;
}

}  // namespace bevy
