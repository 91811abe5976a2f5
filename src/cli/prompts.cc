#include "cli/prompts.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <istream>

#include "cli/interrupt.h"

namespace bevy {
namespace {

void read_lines(std::istream& in, std::vector<std::string>& prompts) {
    for (std::string line; !interrupted() && std::getline(in, line);) {
        if (!line.empty() && line.back() == '\r')
            line.pop_back();
        if (!line.empty())
            prompts.push_back(std::move(line));
    }
}

Result<std::vector<TokenId>> require_tokens(std::vector<TokenId> tokens) {
    if (tokens.empty())
        return fail(ErrorCode::kInvalidArgument, "the prompt has no tokens",
                    "give a prompt that is not empty");
    return tokens;
}

}  // namespace

Result<std::vector<std::string>> collect_prompts(const GenerationOptions& options) {
    std::vector<std::string> prompts = options.prompts;
    if (options.prompts_file.empty())
        return prompts;
    if (options.prompts_file == "-") {
        read_lines(std::cin, prompts);
    } else {
        std::ifstream file(options.prompts_file);
        if (!file)
            return fail(
                ErrorCode::kNotFound,
                "can't read prompts from '" + options.prompts_file + "': " + std::strerror(errno),
                "give a text file with one prompt per line with --prompts");
        read_lines(file, prompts);
        if (file.bad())
            return fail(ErrorCode::kIo, "can't read all of '" + options.prompts_file + "'");
    }
    if (prompts.empty() && !interrupted())
        return fail(ErrorCode::kInvalidArgument, "no prompt in '" + options.prompts_file + "'",
                    "write one prompt per line");
    return prompts;
}

Result<ChatTemplate> open_chat_template(const LlamaVocabulary& vocabulary) {
    return ChatTemplate::create({.source = vocabulary.chat_template(),
                                 .bos_text = vocabulary.bos_text(),
                                 .eos_text = vocabulary.eos_text(),
                                 .tokenizer_adds_bos = vocabulary.adds_bos(),
                                 .tokenizer_adds_eos = vocabulary.adds_eos()});
}

Result<std::vector<TokenId>> encode_chat(const LlamaVocabulary& vocabulary,
                                         const ChatTemplate& chat_template,
                                         const std::vector<ChatMessage>& messages) {
    Result<std::string> prompt = chat_template.render(messages, true);
    if (!prompt)
        return std::unexpected(prompt.error());
    return require_tokens(vocabulary.encode(*prompt, true, true));
}

Result<std::vector<TokenId>> encode_plain(const LlamaVocabulary& vocabulary,
                                          const std::string& prompt) {
    return require_tokens(vocabulary.encode(prompt, true, true));
}

}  // namespace bevy
